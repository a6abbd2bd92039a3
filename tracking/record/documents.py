"""Files that are written and read as a whole: a reader sees the one before or the new one, and never half of either.

No secret gets into what is written here as text or JSON (see tracking.base.secrets).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tracking.base import secrets
from tracking.record import files
from tracking.record.typed_json import MAX_INT

LEFT = re.compile(r"\..+\.(\d+)\.tmp", re.ASCII)  # the names of `replacing`, with the process that writes


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that becomes `path` at the end of the block, at once and durably, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    files.remove(temporary)  # A dead process of this number may have left it, or somebody a link.
    try:
        with files.opened(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        files.replace(temporary, path.name)
    finally:
        files.remove(temporary)


def remove_left(folder: Path) -> None:
    """Remove what processes that are gone have left half-written in a folder that nobody runs."""
    for name in files.names(folder):
        if (match := LEFT.fullmatch(name)) and not Path("/proc", match[1]).exists():
            files.remove(folder / name)


def write_text(path: Path, text: str) -> None:
    """Write a text without the secrets in it (see tracking.base.secrets)."""
    _write(path, secrets.redact(text))


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a dataclass or plain value as JSON, without the secrets in its texts.

    NaN and infinity are refused, since JSON has neither.
    """
    _write(path, to_json(value))


def to_json(value: Any) -> str:
    """A dataclass or plain value without the secrets in its texts."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    return json.dumps(secrets.redacted(plain), indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """A plain value with null for what JSON has no number for: infinity, and what is not a number."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parsed(text: str) -> Any:
    """The JSON of a text. Integers of more than 63 bits become floats, infinite where no float is so large.

    Raises ValueError for what is no JSON, or deeper than Python reads.
    """
    try:
        return DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("is too deep") from error


def _integer(digits: str) -> int | float:
    # Python makes no int of thousands of digits, and no float of an int of hundreds.
    value = int(digits) if len(digits) <= 19 else float(digits)
    return value if abs(value) <= MAX_INT else float(value)


DECODER = json.JSONDecoder(parse_int=_integer)


def read_json(path: Path) -> Any:
    """Raises ValueError that names the file where it is damaged."""
    try:
        return parsed(files.read_text(path))
    except ValueError as error:
        hint = "a machine that went down may leave such a file: move its folder away, or put a copy in place"
        raise ValueError(f"{path}: is damaged ({error}); {hint}") from error
