"""What a figure's key alone says of it: how exact it is."""

from __future__ import annotations

import math

from tracking.base import quantities

# Step times are journaled to a tenth of a microsecond: rates computed from them are that coarse.
EXACT, COARSE = 1e-9, 1e-4


def meets(value: float | None, target: str) -> bool:
    if value is None or not math.isfinite(value):
        return False
    return value <= float(target[2:]) if target.startswith("<=") else value >= float(target)


def tolerance(key: str) -> float:
    return COARSE if key.startswith(quantities.THROUGHPUT) else EXACT


def step(key: str) -> float:
    """How far apart two values are at the least: epochs and evaluations are counted, all else is measured."""
    return 1.0 if key.startswith((quantities.EPOCHS, quantities.EVALUATIONS)) else 0.0
