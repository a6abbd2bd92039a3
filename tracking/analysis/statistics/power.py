"""How many runs would show that two means differ, and how uncertain that number is after a few runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

POWER = 0.8  # the power of a test with the advised number of runs
MOST_RUNS = 10_000  # per side; more is impractical
SPREAD_CONFIDENCE = 0.8  # of the interval of the spread, and so of the range of the number of runs


@dataclass(frozen=True)
class Pilot:
    """The runs of one side: their number, mean and variance (n - 1), and the interval of their `Times`."""

    n: int
    mean: float
    variance: float
    interval: float = 0.0

    def scaled(self, factor: float) -> Pilot:
        return Pilot(self.n, factor * self.mean, factor**2 * self.variance, factor * self.interval)

    def squared_error(self, n: int) -> float:
        """The squared standard error of a mean of n such runs, floored like `floored_variance`."""
        return max(self.variance, self.interval**2 / 4 * n / (n - 1)) / n


def pilot(values: Sequence[float], interval: float = 0.0) -> Pilot:
    """The number, mean and variance of at least two values."""
    return Pilot(len(values), fmean(values), variance(values), interval)


def pilot_of_pairs(
    first: Sequence[float], second: Sequence[float], intervals: tuple[float, float]
) -> tuple[Pilot, Pilot]:
    """Two sides for a paired test: the first side holds the differences and all of their spread."""
    differences = [value - other for value, other in zip(first, second, strict=True)]
    return pilot(differences, math.hypot(*intervals)), Pilot(len(differences), 0.0, 0.0)


@dataclass(frozen=True)
class Needed:
    """The number of runs of the first and of the second side with which a test would have its power.

    `most` are these numbers for a spread at the upper end of its interval; None for over MOST_RUNS. A side that already
    has its number needs no more.
    """

    first: int
    second: int
    most: tuple[int, int] | None


def power(first: Pilot, second: Pilot, sizes: tuple[int, int], distance: float, level: float) -> float:
    """The probability that a t-test of `sizes` runs finds a difference of `distance` at a one-sided level.

    Computed from the noncentral t distribution, with the observed variances taken for the true ones. The degrees of
    freedom are Welch's. The critical value is that of `separate_variances_p` at these variances.
    """
    from scipy import special, stats

    freedoms = sizes[0] - 1, sizes[1] - 1
    parts = first.squared_error(sizes[0]), second.squared_error(sizes[1])
    total = sum(parts)
    if total == 0:
        return float(distance > 0)
    criticals = [special.stdtrit(freedom, level) for freedom in freedoms]
    critical = math.sqrt(sum(part / total * value**2 for part, value in zip(parts, criticals, strict=True)))
    freedom = total**2 / sum(part**2 / freedom for part, freedom in zip(parts, freedoms, strict=True))
    return float(stats.nct.sf(critical, freedom, distance / math.sqrt(total)))


def runs_to_tell(first: Pilot, second: Pilot, distance: float, level: float) -> Needed | None:
    """The number of runs that would find a difference of `distance` with a power of POWER; None for over MOST_RUNS.

    The side with fewer runs grows until the sides are equal; then both grow. `most` takes the upper end of the
    two-sided interval of each variance, s^2 f / chi2((1 - SPREAD_CONFIDENCE) / 2; f), with the f = n - 1 of the smaller
    side.
    """
    from scipy import stats

    needed = _sizes(first, second, distance, level)
    if needed is None:
        return None
    freedom = min(first.n, second.n) - 1
    wider = freedom / float(stats.chi2.ppf((1 - SPREAD_CONFIDENCE) / 2, freedom))
    wide_first, wide_second = (replace(side, variance=wider * side.variance) for side in (first, second))
    most = _sizes(wide_first, wide_second, distance, level)
    return Needed(*needed, most)


def _sizes(first: Pilot, second: Pilot, distance: float, level: float) -> tuple[int, int] | None:
    """The smallest numbers of runs with enough power, each at least the number that the side already has."""
    if not distance > 0:
        return None

    def sizes(n: int) -> tuple[int, int]:
        return max(n, first.n), max(n, second.n)

    def enough(n: int) -> bool:
        return power(first, second, sizes(n), distance, level) >= POWER

    low, high = min(first.n, second.n), 2 * min(first.n, second.n)
    while not enough(high):
        if high >= MOST_RUNS:
            return None
        low, high = high, min(2 * high, MOST_RUNS)
    while high - low > 1:  # power grows with n
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return sizes(high)
