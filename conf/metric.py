"""What is declared of a metric: which way is better, and between which values it can lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LOWER, HIGHER = "lower", "higher"
DIRECTIONS = (LOWER, HIGHER)
FORMS = "[LOWEST, HIGHEST, lower] or [LOWEST, HIGHEST, higher], or the last word alone where values have no bounds"


@dataclass(frozen=True)
class Declared:
    """`bounds` are the lowest and the highest possible value; `better` is LOWER or HIGHER. None was not declared."""

    bounds: tuple[float, float] | None
    better: str | None


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
