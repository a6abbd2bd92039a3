"""Whether one of two settings gets to its target more often than the other, where runs of them missed it.

Means say little of a setting that misses: nobody knows how late it would have been. What is known is how many of its
runs had got there when the first run of the other setting was given up, and how many of the other's ever did. A miss
can only count against its setting here, too: no time but the other's matters. Runs that diverged never get there.
These shares are compared by Fisher's exact test (Fisher 1935, Journal of the Royal Statistical Society 98, 39-82),
which holds its level for any number of runs: settings that get there as often are told apart in 5 % of cases at most.

It is another question than whose time is the shorter one, with an answer of its own: settings of equal mean times and
unequal spread do differ in how often they are there by a given time. benchmarks/reports/error_rates.py has the rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracking.statistics.time_to_event import Times


@dataclass(frozen=True)
class Early:
    """How many of n runs of a setting had reached the target when the first of the other's m was given up, and how many
    of these ever did."""

    reached: int
    n: int
    other_reached: int
    m: int

    @property
    def p(self) -> float:
        """The one-sided p-value for the first setting's true share being the larger one."""
        from scipy import stats

        return float(stats.hypergeom.sf(self.reached - 1, self.n + self.m, self.reached + self.other_reached, self.n))


def early(first: Times, second: Times) -> Early:
    """Of `first` all that got there count, where no run of `second` was given up: then these diverged or got there."""
    by = min(second.censored, default=math.inf)
    return Early(sum(value <= by for value in first.reached), first.n, len(second.reached), second.n)


@dataclass(frozen=True)
class Often:
    """The two-sided p-value of two settings reaching their target as often.

    `early` is of that which seems to do so more often: the `first` of the two, or the other.
    """

    first: bool
    early: Early
    p: float
    adjusted: float | None = None  # by Holm, over all pairs of the workload


def often(first: Times, second: Times) -> Often | None:
    """None where no run missed, and where a side has fewer than two runs."""
    if not first.num_short + second.num_short or min(first.n, second.n) < 2:
        return None
    sides = early(first, second), early(second, first)
    more = min(sides, key=lambda side: side.p)
    return Often(more is sides[0], more, min(1.0, 2 * more.p))
