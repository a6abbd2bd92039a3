"""Writes and reads whole files: a reader sees the old file or the new one, never half of either.

Texts and JSON are written without secrets (see tracking.base.secrets).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tracking.base import secrets
from tracking.record import files
from tracking.record.typed_json import MAX_INT

TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp", re.ASCII)  # files of `replacing`, with the id of the writing process


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that becomes `path` at the end of the block, atomically and durably, or not at all.

    An OSError of it names `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        files.remove(temporary)  # A dead process with this id may have left it, or another user a link.
        with files.opened(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        files.replace(temporary, path.name)
    except OSError as error:
        if error.errno and (error.filename is None or Path(error.filename) in (temporary, Path(temporary.name))):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with suppress(OSError):  # as on a read-only disk, which the first error names
            files.remove(temporary)


def remove_temporary(folder: Path) -> None:
    """Remove half-written files of dead processes from a folder that no process runs."""
    for name in files.names(folder):
        if (match := TEMPORARY.fullmatch(name)) and not Path("/proc", match[1]).exists():
            files.remove(folder / name)


def write_text(path: Path, text: str) -> None:
    """Write a text without its secrets (see tracking.base.secrets)."""
    _write(path, secrets.redact(text))


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a dataclass or plain value as JSON, without its secrets. Raises ValueError for NaN and infinity."""
    _write(path, to_json(value))


def to_json(value: Any) -> str:
    """A dataclass or plain value as JSON, without its secrets. Raises ValueError for NaN and infinity."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    return json.dumps(secrets.redacted(plain), indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """A plain value with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parsed(text: str) -> Any:
    """The value of a JSON text. Integers of more than 63 bits become floats, or infinity.

    Raises ValueError for malformed JSON, and for JSON nested deeper than Python's recursion limit.
    """
    try:
        return DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("is too deep") from error


def _integer(digits: str) -> int | float:
    # Python refuses ints of thousands of digits, and floats from ints of hundreds.
    value = int(digits) if len(digits) <= 19 else float(digits)
    return value if abs(value) <= MAX_INT else float(value)


DECODER = json.JSONDecoder(parse_int=_integer)


def read_json(path: Path) -> Any:
    """The value of a JSON file. Raises OSError, and ValueError that names a damaged file."""
    try:
        return parsed(files.read_text(path))
    except ValueError as error:
        hint = "A crash of the machine may cause this. Next: move its folder away, or put a copy in place"
        raise ValueError(f"{path}: is damaged ({error}). {hint}") from error
