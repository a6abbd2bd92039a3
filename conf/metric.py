"""What is declared of a metric: which way is better, and between which values it can lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

LOWER, HIGHER = "lower", "higher"
DIRECTIONS = (LOWER, HIGHER)
NO_DIRECTIONS: Mapping[str, str] = MappingProxyType({})
FORMS = "[LOWEST, HIGHEST, lower] or [LOWEST, HIGHEST, higher], or the last word alone where values have no bounds"


@dataclass(frozen=True)
class Declared:
    """`bounds` are the lowest and the highest possible value; `better` is LOWER or HIGHER. None was not declared."""

    bounds: tuple[float, float] | None
    better: str | None


def directions(metrics: Mapping[str, Any]) -> dict[str, str]:
    """By metric, which way is better, where that is declared. Raises ValueError that begins with the metric's name."""
    declared = {}
    for name, value in metrics.items():
        try:
            declared[name] = parse(value).better
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return {name: better for name, better in declared.items() if better}


def is_declaration(value: Any) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return True


def bounds(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds of each metric that has some, as a YAML without directions has them."""
    there = {name: value for name, value in metrics.items() if value not in DIRECTIONS}
    return {name: value[:2] if is_declaration(value) else value for name, value in there.items()}


def parse(value: Any) -> Declared:
    """What a model's YAML declares of a metric. Raises ValueError for what has no such form.

    `[0.0, 1.0]` declares bounds alone.
    """
    if value in DIRECTIONS:
        return Declared(None, value)
    parts = list(value) if isinstance(value, list | tuple) else []
    better = parts.pop() if len(parts) == 3 and parts[2] in DIRECTIONS else None
    if len(parts) != 2 or not all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts):
        raise ValueError(f"is {value!r}; give {FORMS}")
    return Declared((float(parts[0]), float(parts[1])), better)


def written(declared: Mapping[str, str]) -> str:
    """Directions as one tag of a run: `accuracy=higher,loss=lower`."""
    return ",".join(f"{name}={word}" for name, word in declared.items())


def read(text: str) -> dict[str, str]:
    """The directions in such a tag; a part that is no direction is left out."""
    pairs = (part.rpartition("=") for part in text.split(","))
    return {name: word for name, _, word in pairs if name and word in DIRECTIONS}
