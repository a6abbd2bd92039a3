"""Means of repeated runs with their standard errors, and the correction for multiple tests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def mean_and_standard_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error s / sqrt(n), with s by n - 1; the error of a single value is None.

    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values")
    mean = statistics.fmean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def olympic_mean(values: Sequence[float], dropped: int = 1) -> float:
    """The mean without the `dropped` lowest and highest values, as MLPerf scores repeated runs.

    MLPerf training rules, section "Benchmark Results": "dropping the fastest and slowest runs, then taking the mean of
    the remaining times". https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
    Raises ValueError if no value is left.
    """
    if len(values) <= 2 * dropped:
        least = "three" if dropped == 1 else 2 * dropped + 1
        raise ValueError(f"an olympic mean needs {least} values or more, not {len(values)}")
    return statistics.fmean(sorted(values)[dropped : len(values) - dropped])


def finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def constant(values: Sequence[float]) -> bool:
    """Whether values differ only by rounding, so that their variance means nothing."""
    return all(math.isclose(value, values[0], rel_tol=1e-12) for value in values)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for multiple tests, in the order given.

    At most 5 % of families of true null hypotheses have an adjusted p-value below 0.05. This also holds for tests that
    depend on each other, as those of all pairs of settings do. Holm 1979, Scandinavian Journal of Statistics 6, 65-70;
    R's p.adjust(method="holm") gives the same.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted
