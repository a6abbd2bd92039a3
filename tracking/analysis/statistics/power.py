"""How many runs would tell two means apart, and how sure that number is when it rests on a few runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

POWER = 0.8  # with which the runs that are advised would tell
MOST_RUNS = 10_000  # of a side: nobody makes more
SPREAD_CONFIDENCE = 0.8  # of the interval of the spread, and so of the range of runs


@dataclass(frozen=True)
class Pilot:
    """The runs of one side: how many, their mean, their variance (n - 1), and the interval of `Times`."""

    n: int
    mean: float
    variance: float
    interval: float = 0.0

    def scaled(self, factor: float) -> Pilot:
        return Pilot(self.n, factor * self.mean, factor**2 * self.variance, factor * self.interval)

    def part(self, n: int) -> float:
        """The squared standard error of a mean of n such runs, with the floor of the tests."""
        return max(self.variance, self.interval**2 / 4 * n / (n - 1)) / n


def pilot(values: Sequence[float], interval: float = 0.0) -> Pilot:
    """Of two values at least."""
    return Pilot(len(values), fmean(values), variance(values), interval)


def pilot_of_pairs(
    first: Sequence[float], second: Sequence[float], intervals: tuple[float, float]
) -> tuple[Pilot, Pilot]:
    """Two sides whose test is that of the pairs: all of the spread of the differences is the first one's."""
    differences = [value - other for value, other in zip(first, second, strict=True)]
    return pilot(differences, math.hypot(*intervals)), Pilot(len(differences), 0.0, 0.0)


@dataclass(frozen=True)
class Needed:
    """So many runs of the first and of the second side would tell, `most` of them where the spread is at the upper end
    of its interval (None: more than anybody makes). A side that has that many already needs no more."""

    first: int
    second: int
    most: tuple[int, int] | None


def power(first: Pilot, second: Pilot, sizes: tuple[int, int], distance: float, level: float) -> float:
    """The probability that a t-test of so many runs tells means that are `distance` apart, at a one-sided level.

    By the noncentral t distribution, were the observed variances the true ones: the degrees of freedom are Welch's, and
    the critical value is that of `separate_variances_p` at these variances.
    """
    from scipy import special, stats

    freedoms = sizes[0] - 1, sizes[1] - 1
    parts = first.part(sizes[0]), second.part(sizes[1])
    total = sum(parts)
    if total == 0:
        return float(distance > 0)
    criticals = [special.stdtrit(freedom, level) for freedom in freedoms]
    critical = math.sqrt(sum(part / total * value**2 for part, value in zip(parts, criticals, strict=True)))
    freedom = total**2 / sum(part**2 / freedom for part, freedom in zip(parts, freedoms, strict=True))
    return float(stats.nct.sf(critical, freedom, distance / math.sqrt(total)))


def runs_to_tell(first: Pilot, second: Pilot, distance: float, level: float) -> Needed | None:
    """How many runs would tell means that are `distance` apart with a probability of POWER; None for over MOST_RUNS.

    The side with fewer runs grows first, up to as many as the other has; then both. `most` takes the upper end of the
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
    """The fewest runs of both sides that tell, each as many as there are at least."""
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
