"""Which way a metric is better, by its key."""

from __future__ import annotations

from conf.metric import HIGHER
from tracking.base import quantities
from tracking.record import evaluations

SPEEDS = (
    quantities.TIME, quantities.EPOCHS, quantities.EVALUATIONS, quantities.COST, quantities.ENERGY, quantities.MEMORY,
    quantities.THROUGHPUT,
)  # fmt: skip


def higher_is_better(key: str) -> bool:
    """Of rates and scores more is better; of times, costs, losses and all else, less."""
    if key.startswith((quantities.EVAL, quantities.TEST)):
        return evaluations.higher_is_better(key)
    return quantities.better(key) == HIGHER


def has_slowdown(key: str) -> bool:
    """Whether it is a rate, a time or a cost, of which it can be said that one is slower than another."""
    return key.startswith(SPEEDS) and (quantities.better(key) is not None or key not in quantities.CATALOGUE)
