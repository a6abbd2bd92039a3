"""Reads JSON of a run folder into the dataclass that it was written from, and checks every field.

A folder is untrusted, or from a damaged disk. Errors are found here, where the file's name is known, rather than later
where a value is used.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

MAX_MS = 253_402_300_799_999  # the last millisecond of the year 9999, the last that Python's dates represent
MAX_INT = 2**63 - 1

T = TypeVar("T")


def checked(cls: type[T], content: Any, path: Path) -> T:
    """An instance of a dataclass. Raises ValueError that names the file, the field and what is allowed."""
    if not isinstance(content, dict):
        raise ValueError(f"{path}: {_short(content)} is not an object. {_hint(path)}")
    hints = typing.get_type_hints(cls)
    if unknown := sorted(set(content) - set(hints)):
        raise ValueError(f"{path}: {unknown[0]!r} is not a field. Allowed: {', '.join(hints)}. {_hint(path)}")
    for name, value in content.items():
        if not _fits(value, hints[name]) or (name.endswith("_ms") and not is_time(value)):
            allowed = hints[name].__name__ if isinstance(hints[name], type) else str(hints[name])
            raise ValueError(f"{path}: {name} is {_short(value)}. Allowed: {allowed}. {_hint(path)}")
    values = {
        name: checked(part, value, path) if (part := _dataclass_of(hints[name])) and value is not None else value
        for name, value in content.items()
    }
    try:
        return cls(**values)
    except TypeError:  # A field without a default is missing.
        missing = [field.name for field in dataclasses.fields(typing.cast(Any, cls)) if field.name not in content]
        raise ValueError(f"{path}: {missing[0]!r} is missing. {_hint(path)}") from None


def is_time(value: Any) -> bool:
    """Whether the value is a time in ms that Python's dates represent."""
    return type(value) is int and 0 <= value <= MAX_MS


def is_number(value: Any) -> bool:
    """Whether the value is a number that fits into a float, including NaN and infinity."""
    return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in parts)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(inner, parts[1]) for inner in value.values())
    if origin is list:
        return isinstance(value, list) and all(_fits(inner, parts[0]) for inner in value)
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    if hint is float:  # We write neither infinity nor NaN. A too long integer is read as infinity.
        return is_number(value) and math.isfinite(value)
    if hint is int:
        return type(value) is int and abs(value) <= MAX_INT
    return isinstance(value, hint)


def _dataclass_of(hint: Any) -> type | None:
    """The dataclass in a type hint, alone or in a union with None; None without one."""
    return next((part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)), None)  # type: ignore[return-value]


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) <= MAX_INT else "a number of more than 63 bits"
    return text if len(text) <= 60 else text[:59] + "…"


def _hint(path: Path) -> str:
    return f"Next: unless timetrial wrote it so, move {path.parent} away, or put a copy in place"
