"""Whether one of two settings reaches its target more often than the other, by the end of the budget that both had.

A share is of a time: given more room, more runs arrive. So the two are compared at their horizon, the earliest time at
which a run of either had spent its own budget without reaching the target. A run that was stopped from outside before
that time is unknown, and in no count; one that diverged never arrives. The shares are compared by Fisher's exact test
(Fisher 1935, Journal of the Royal Statistical Society 98, 39-82), which holds its level for any number of runs.

It is another question than whose time is the shorter one, with an answer of its own: settings of equal mean times and
unequal spread do differ in how often they are there by a given time. benchmarks/reports has the rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracking.analysis.statistics.time_to_event import Times


@dataclass(frozen=True)
class Counts:
    """How many of n known runs of a setting had reached the target by the horizon, and how many of the other's m.

    `horizon` is infinite where no run spent its budget: then each run that did not arrive diverged or was stopped.
    """

    reached: int
    n: int
    other_reached: int
    m: int
    horizon: float = math.inf

    @property
    def p(self) -> float:
        """The one-sided p-value for the first setting's true share being the larger one."""
        from scipy import stats

        return float(stats.hypergeom.sf(self.reached - 1, self.n + self.m, self.reached + self.other_reached, self.n))

    @property
    def turned(self) -> Counts:
        return Counts(self.other_reached, self.m, self.reached, self.n, self.horizon)


def horizon(*sides: Times) -> float:
    """The earliest time at which a run had spent its own budget; infinite where none did. 0 says that nobody knows."""
    return min((when for side in sides for when in side.missed if when > 0), default=math.inf)


def counts(first: Times, second: Times) -> Counts:
    """A run whose budget was spent nobody knows when (0) is unknown, too."""
    by = horizon(first, second)
    reached, known = zip(*(_at(side, by) for side in (first, second)), strict=True)
    return Counts(reached[0], known[0], reached[1], known[1], by)


def _at(times: Times, horizon: float) -> tuple[int, int]:
    """How many runs had reached the target by then, and of how many it is known whether they had."""
    known = len(times.reached) + sum(when > 0 for when in times.missed) + times.num_diverged
    return sum(value <= horizon for value in times.reached), known + sum(when >= horizon for when in times.stopped)


@dataclass(frozen=True)
class Often:
    """The two-sided p-value of two settings reaching their target as often: twice the smaller one-sided one, 1 at most.

    `counts` are of the setting that seems to do so more often: the `first` of the two, or the other.
    """

    first: bool
    counts: Counts
    p: float
    adjusted: float | None = None  # by Holm, over all pairs of the workload


def often(first: Times, second: Times) -> Often | None:
    """None where every run reached the target, and where fewer than two runs of a side are known."""
    both = counts(first, second)
    if not first.num_short + second.num_short or min(both.n, both.m) < 2:
        return None
    sides = both, both.turned
    more = min(sides, key=lambda side: side.p)
    return Often(more is sides[0], more, min(1.0, 2 * more.p))
