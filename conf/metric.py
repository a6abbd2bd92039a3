"""The declaration of a metric: which way is better, and its lowest and highest possible value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

LOWER, HIGHER = "lower", "higher"
DIRECTIONS = (LOWER, HIGHER)
NO_DIRECTIONS: Mapping[str, str] = MappingProxyType({})
FORMS = "[LOWEST, HIGHEST, lower] or [LOWEST, HIGHEST, higher], or only the last word if values have no bounds"


@dataclass(frozen=True)
class Declared:
    """`bounds`: the lowest and the highest possible value; `better`: LOWER or HIGHER. None: not declared."""

    bounds: tuple[float, float] | None
    better: str | None


def directions(metrics: Mapping[str, Any]) -> dict[str, str]:
    """The declared directions by metric. Raises ValueError whose text begins with the metric's name."""
    declared = {}
    for name, value in metrics.items():
        try:
            declared[name] = parse(value).better
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return {name: better for name, better in declared.items() if better}


def declaration_advice(name: str) -> str:
    """The ways to declare a metric's direction, for the next step of a message."""
    return (
        f"declare it and run again, by metrics: {{{name}: lower}} or {{{name}: higher}} in a model's YAML,"
        f" metrics={{'{name}': 'lower'}} of TimeTrial and time_trial, [EXPRESSION, lower] in program.metrics, or a"
        f" target of {name}"
    )


def is_declaration(value: Any) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return True


def bounds(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics with bounds, in the form of older YAML files, which have no directions."""
    bounded = {name: value for name, value in metrics.items() if value not in DIRECTIONS}
    return {name: value[:2] if is_declaration(value) else value for name, value in bounded.items()}


def parse(value: Any) -> Declared:
    """The declaration of a metric in a model's YAML; `[0.0, 1.0]` declares bounds alone. Raises ValueError."""
    if value in DIRECTIONS:
        return Declared(None, value)
    parts = list(value) if isinstance(value, list | tuple) else []
    better = parts.pop() if len(parts) == 3 and parts[2] in DIRECTIONS else None
    if len(parts) != 2 or not all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts):
        raise ValueError(f"{value!r} does not declare a metric. Allowed: {FORMS}")
    return Declared((float(parts[0]), float(parts[1])), better)


def to_tag(declared: Mapping[str, str]) -> str:
    """Directions as one tag of a run: `accuracy=higher,loss=lower`."""
    return ",".join(f"{name}={word}" for name, word in declared.items())


def from_tag(text: str) -> dict[str, str]:
    """The directions in the tag that `to_tag` makes; parts without a direction are skipped."""
    pairs = (part.rpartition("=") for part in text.split(","))
    return {name: word for name, _, word in pairs if name and word in DIRECTIONS}
