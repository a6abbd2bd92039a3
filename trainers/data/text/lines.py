"""Reads files of one sentence a line, and says of what is wrong in which file and line it stands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from conf.schema import ConfigError

CHUNK = 50_000  # lines that are held at a time


def read_lines(path: Path) -> Iterator[list[str]]:
    """The lines of a UTF-8 file, without their ends, some tens of thousands at a time.

    Only a line feed ends a line, as in the tools that make such files. Raises ConfigError for a line that is empty or
    no UTF-8, and for a file that cannot be read or has no line.
    """
    first = 1
    try:
        with path.open("rb") as file:
            while chunk := list(islice(file, CHUNK)):
                yield _checked(path, chunk, first)
                first += len(chunk)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); put the file in place") from error
    if first == 1:
        raise ConfigError(f"{path}: is empty; put the dataset's original file in place")


def _checked(path: Path, chunk: list[bytes], first: int) -> list[str]:
    try:
        text = b"".join(chunk).decode()
    except UnicodeDecodeError:
        for number, line in enumerate(chunk, first):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise ConfigError(
                    f"{path}, line {number}: is no UTF-8 at byte {error.start + 1} of the line; convert the file, as"
                    " by iconv -t UTF-8"
                ) from error
        raise
    lines = text.removesuffix("\n").split("\n")
    for number, content in enumerate(lines, first):
        if not content.strip():
            raise ConfigError(
                f"{path}, line {number}: is empty, so that there is nothing to translate; remove the line from the"
                " files of both languages"
            )
    return lines
