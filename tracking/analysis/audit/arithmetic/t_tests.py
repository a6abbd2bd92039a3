"""p-values of two means of few values, which may fall only on evaluations."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy

NOTHING = 1e-12  # relative: a spread below it is rounding


def variance(values: Sequence[float], interval: float) -> float:
    """The variance, at least that of values that fall half and half on two neighbouring evaluations."""
    n = len(values)
    coin = (interval / 2) ** 2 * n / (n - 1)
    return max(float(numpy.var(values, ddof=1)), coin)


def interval_of_mean(values: Sequence[float], interval: float, level: float) -> tuple[float, float]:
    """Student's interval of a mean, one-sided at this level on each side."""
    from scipy.special import stdtrit

    middle, error = float(numpy.mean(values)), math.sqrt(variance(values, interval) / len(values))
    half = float(stdtrit(len(values) - 1, 1 - level)) * error
    return middle - half, middle + half


@functools.lru_cache(100_000)
def p_of_distance(distance: float, parts: tuple[tuple[float, int], ...]) -> float:
    """The two-sided p at which distance^2 is the sum of (variance of a mean) x (critical value of t)^2.

    Each part is the variance of a mean, and its degrees of freedom.
    """
    from scipy.special import stdtr, stdtrit

    shares = [(part, freedom) for part, freedom in parts if part > 0]
    score = abs(distance) / math.sqrt(sum(part for part, _ in shares))
    ends = sorted(2 * float(stdtr(freedom, -score)) for _, freedom in shares)
    low, high = ends[0], ends[-1]
    if low < 1e-300:
        return 0.0
    while True:  # halves the interval of log p
        p = math.sqrt(low) * math.sqrt(high)
        if not low < p < high:
            return p
        needed = sum(part * float(stdtrit(freedom, p / 2)) ** 2 for part, freedom in shares)
        low, high = (low, p) if needed < distance**2 else (p, high)


def p_below(low: Sequence[float], high: Sequence[float], intervals: tuple[float, float]) -> float:
    """The one-sided p-value; small means that the true mean of `low` is below that of `high`."""
    variances = [variance(side, interval) for side, interval in zip((low, high), intervals, strict=True)]
    return _one_sided(low, high, (variances[0], variances[1]))


def p_below_in_pairs(low: Sequence[float], high: Sequence[float], intervals: tuple[float, float]) -> float:
    """`p_below` for pairs, numbers with the same index: Student's t of their differences."""
    from scipy.special import stdtr

    gaps = [number - its for number, its in zip(low, high, strict=True)]
    distance = float(numpy.mean(gaps))
    error = math.sqrt(variance(gaps, math.sqrt(intervals[0] ** 2 + intervals[1] ** 2)) / len(gaps))
    nothing = NOTHING * abs(float(numpy.mean(low)))
    if error <= nothing:
        return 0.0 if distance < -nothing else 1.0
    return float(stdtr(len(gaps) - 1, distance / error))


def p_below_bounds(low: Sequence[float], bounds: Sequence[float], intervals: tuple[float, float]) -> float:
    """`p_below` if the other's values are only lower bounds, which may scatter less than the values."""
    own, other = (variance(side, interval) for side, interval in zip((low, bounds), intervals, strict=True))
    return _one_sided(low, bounds, (own, max(own, other)))


def _one_sided(low: Sequence[float], high: Sequence[float], variances: tuple[float, float]) -> float:
    distance = float(numpy.mean(low) - numpy.mean(high))
    parts = tuple((value / len(side), len(side) - 1) for value, side in zip(variances, (low, high), strict=True))
    if math.sqrt(sum(part for part, _ in parts)) <= NOTHING * abs(float(numpy.mean(low))):
        return 0.0 if distance < -NOTHING * abs(float(numpy.mean(high))) else 1.0
    half = p_of_distance(distance, parts) / 2 if distance else 0.5
    return half if distance < 0 else 1 - half
