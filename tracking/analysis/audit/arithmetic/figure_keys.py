"""The tolerance of a figure, by its key."""

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
    """The spacing of a figure's values: 1 for counts (epochs, evaluations), 0 for measured ones."""
    return 1.0 if key.startswith((quantities.EPOCHS, quantities.EVALUATIONS)) else 0.0
