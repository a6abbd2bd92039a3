"""Flatten nested values to dotted keys, and find the keys in which several differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

NONE = "(none)"  # the value of a missing key or an empty mapping

Values = Mapping[str, Any]  # by dotted key: a number, text or None


def flat(value: Any, prefix: str = "", into_lists: bool = False) -> dict[str, Any]:
    """Every value by its dotted key. A list is one value; with `into_lists`, each item has a key (`gpus.0.name`)."""
    parts = dict(enumerate(value)) if into_lists and isinstance(value, list) else value
    if not isinstance(parts, Mapping) or not parts:
        return {prefix: NONE if isinstance(parts, Mapping) else value} if prefix else {}
    values: dict[str, Any] = {}
    for key, inner in parts.items():
        values |= flat(inner, f"{prefix}.{key}" if prefix else str(key), into_lists)
    return values


def words(value: Any) -> dict[str, str]:
    """`flat`, with every value as text."""
    return {key: str(inner) for key, inner in flat(value).items()}


def differing(settings: Sequence[Values]) -> list[tuple[str, list[Any]]]:
    """Keys whose values differ, largest relative change first; then those without one, such as text, by name."""
    keys = dict.fromkeys(key for setting in settings for key in setting)
    rows = [(key, [setting.get(key, NONE) for setting in settings]) for key in keys]
    rows = [(key, values) for key, values in rows if not all(_same(value, values[0]) for value in values)]
    return sorted(rows, key=lambda row: (-abs(relative_change(row[1]) or 0.0), row[0]))


def _same(value: Any, other: Any) -> bool:
    """Whether two values are equal; NaN is the same as NaN."""
    return bool(value == other) or repr(value) == repr(other)


def relative_change(values: Sequence[Any]) -> float | None:
    """The largest change from the first value, as a signed share of it; None unless all are finite numbers."""
    numbers = [number(value) for value in values]
    first = numbers[0]
    if first is None:
        return None
    changes = []
    for other in numbers[1:]:
        if other is None:
            return None
        changes.append(0.0 if other == first else (other - first) / abs(first) if first else float("inf"))
    return max(changes, key=abs)


def number(value: Any) -> float | None:
    """The value as a float; None for text, such as a version, for booleans, and for what is not finite."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None
