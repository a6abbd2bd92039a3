"""Reads files with one sentence a line; errors name file and line."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from conf.schema import ConfigError
from trainers.data.reading.regular_file import check_encoding, conversion, opened

CHUNK = 50_000  # lines in memory at a time
OF_NO_SENTENCE = "nothing is to translate. Next: remove the line from the files of both languages"


def read_lines(path: Path, of_nothing: str = OF_NO_SENTENCE) -> Iterator[list[str]]:
    """Yield the lines of a UTF-8 file in chunks, without line ends and a byte order mark.

    Only a line feed ends a line, with or without a carriage return before it, as in the tools that make such files.
    Raises ConfigError for an empty line, with the explanation `of_nothing`, for a line that is not UTF-8, and for a
    file that cannot be read or has no lines.
    """
    first = 1
    try:
        check_encoding(path)
        with opened(path) as file:
            while chunk := list(islice(file, CHUNK)):
                if first == 1:
                    chunk[0] = chunk[0].removeprefix(BOM_UTF8)
                yield _checked(path, chunk, first, of_nothing)
                first += len(chunk)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Next: put the file in place") from error
    if first == 1:
        raise ConfigError(f"{path}: is empty. Next: put the dataset's original file in place")


def _checked(path: Path, chunk: list[bytes], first: int, of_nothing: str) -> list[str]:
    try:
        text = b"".join(chunk).decode()
    except UnicodeDecodeError:
        for number, line in enumerate(chunk, first):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise ConfigError(
                    f"{path}, line {number}: is not UTF-8 at byte {error.start + 1} of the line. {conversion(path)}"
                ) from error
        raise
    lines = text.removesuffix("\n").removesuffix("\r").replace("\r\n", "\n").split("\n")
    for number, content in enumerate(lines, first):
        if not content.strip():
            raise ConfigError(f"{path}, line {number}: is empty, so {of_nothing}")
    return lines
