"""Nested values as one mapping with dotted keys, and in which of them several differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NONE = "(none)"  # of a key that one has not got, or that holds nothing

Values = Mapping[str, Any]  # dotted key: number, word or None


def flat(value: Any, prefix: str = "", into_lists: bool = False) -> dict[str, Any]:
    """Every value by its dotted key; a list is one value, or with `into_lists` one a place (`gpus.0.name`)."""
    parts = dict(enumerate(value)) if into_lists and isinstance(value, list) else value
    if not isinstance(parts, Mapping) or not parts:
        return {prefix: NONE if isinstance(parts, Mapping) else value} if prefix else {}
    found: dict[str, Any] = {}
    for key, inner in parts.items():
        found |= flat(inner, f"{prefix}.{key}" if prefix else str(key), into_lists)
    return found


def words(value: Any) -> dict[str, str]:
    """`flat`, with every value as text."""
    return {key: str(inner) for key, inner in flat(value).items()}


def differing(settings: Sequence[Values]) -> list[tuple[str, list[Any]]]:
    """Keys whose values differ, by relative change; those that have none, being words, behind, by name."""
    keys = dict.fromkeys(key for setting in settings for key in setting)
    rows = [(key, [setting.get(key, NONE) for setting in settings]) for key in keys]
    rows = [(key, values) for key, values in rows if any(value != values[0] for value in values)]
    return sorted(rows, key=lambda row: (-abs(relative_change(row[1]) or 0.0), row[0]))


def relative_change(values: Sequence[Any]) -> float | None:
    """The largest change against the first value, as a share of it, with its sign; None where not all are numbers."""
    numbers = [number(value) for value in values]
    first = numbers[0]
    if first is None:
        return None
    changes = []
    for one in numbers[1:]:
        if one is None:
            return None
        changes.append(0.0 if one == first else (one - first) / abs(first) if first else float("inf"))
    return max(changes, key=abs)


def number(value: Any) -> float | None:
    """A number as one; words, which versions are, and truth values are none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
