"""Whether one of two settings reaches its target more often than the other within the budget that both had.

The share of runs that reach the target grows with the time allowed. So two settings are compared at their horizon: the
earliest time at which a run of either spent its own budget without reaching the target. A run that was stopped from
outside before the horizon is unknown and not counted. A run that diverged never reaches the target. The shares are
compared by Fisher's exact test (Fisher 1935, Journal of the Royal Statistical Society 98, 39-82), which holds its level
for any number of runs.

This is not the question which setting is quicker. Settings with equal mean times and unequal spread differ in the share
of runs that reach the target by a given time. benchmarks/reports has the rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracking.analysis.statistics.time_to_event import Times

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Counts:
    """Runs that reached the target by the horizon: `reached` of n in one setting, `other_reached` of m in the other.

    `horizon` is infinite if no run spent its budget: then every run without the target diverged or was stopped.
    """

    reached: int
    n: int
    other_reached: int
    m: int
    horizon: float = math.inf

    @property
    def p(self) -> float:
        """The one-sided p-value; small means that the first setting's true share is larger."""
        from scipy import stats

        return float(stats.hypergeom.sf(self.reached - 1, self.n + self.m, self.reached + self.other_reached, self.n))

    @property
    def swapped(self) -> Counts:
        return Counts(self.other_reached, self.m, self.reached, self.n, self.horizon)


def horizon(*sides: Times) -> float:
    """The earliest time at which a run had spent its own budget; infinite if no run did. Times of 0 are unknown."""
    return min((when for side in sides for when in side.missed if when > 0), default=math.inf)


def counts(first: Times, second: Times) -> Counts:
    """The counts at the horizon of two settings. A run that missed at an unknown time (0) is not counted."""
    by = horizon(first, second)
    reached, known = zip(*(_reached_and_known(side, by) for side in (first, second)), strict=True)
    return Counts(reached[0], known[0], reached[1], known[1], by)


def _reached_and_known(times: Times, horizon: float) -> tuple[int, int]:
    """The number of runs that reached the target by the horizon, and the number whose state at it is known."""
    known = len(times.reached) + sum(when > 0 for when in times.missed) + times.num_diverged
    return sum(value <= horizon for value in times.reached), known + sum(when >= horizon for when in times.stopped)


@dataclass(frozen=True)
class Often:
    """The test of equal shares: `p` is two-sided, twice the smaller one-sided p-value, at most 1.

    `counts` begins with the setting that seems to reach its target more often; `first`: it is the first of the two.
    """

    first: bool
    counts: Counts
    p: float
    adjusted: float | None = None  # by Holm, over all pairs of the workload


def often(first: Times, second: Times) -> Often | None:
    """The comparison of two shares. None if every run reached the target, or a side has fewer than two known runs."""
    both = counts(first, second)
    if not first.num_short + second.num_short or min(both.n, both.m) < 2:
        return None
    sides = both, both.swapped
    more = min(sides, key=lambda side: side.p)
    return Often(more is sides[0], more, min(1.0, 2 * more.p))


def proven_share(num_good: int, n: int) -> float:
    """The one-sided lower bound of the true share of successes: 0.37 for 3 of 3; 0 without a success.

    Clopper and Pearson 1934, Biometrika 26, 404-413: the share at which `num_good` or more successes have a probability
    of 1 - CONFIDENCE.
    """
    from scipy.special import betaincinv

    return float(betaincinv(num_good, n - num_good + 1, 1 - CONFIDENCE)) if num_good else 0.0
