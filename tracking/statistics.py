"""Statistics of repeated runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def mean_and_standard_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error s / sqrt(n), s with n - 1; None for a single value, which has no spread.

    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values")
    mean = statistics.fmean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
