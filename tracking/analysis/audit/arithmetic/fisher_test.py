"""Fisher's exact test of how many runs of two settings reached the target within the budget that both had."""

from __future__ import annotations

import math

from tracking.analysis.audit.arithmetic.censored_means import Observations

Table = tuple[int, int, int, int, float]  # reached and n of one setting, of the other; and by when


def tables(first: Observations, second: Observations) -> tuple[Table, Table]:
    """The counts at the earliest time at which a run of either side had spent its budget; beginning with each side.

    Runs that were stopped before that time, or that missed the target at an unknown time, are not counted.
    """
    by = min((when for side in (first, second) for when in side.missed if when > 0), default=math.inf)
    (arrived, n), (other_arrived, m) = ((_arrived(side, by), _known(side, by)) for side in (first, second))
    return (arrived, n, other_arrived, m, by), (other_arrived, m, arrived, n, by)


def _arrived(side: Observations, by: float) -> int:
    return sum(number <= by for number in side.numbers)


def _known(side: Observations, by: float) -> int:
    spent = sum(when > 0 for when in side.missed)
    return len(side.numbers) + spent + side.never + sum(when >= by for when in side.stopped)


def p_value(counts: Table) -> float:
    """The one-sided p-value: the first setting reaches the target so often or more, by chance, given the total."""
    reached, n, other, m, _ = counts
    total = reached + other
    ways = sum(math.comb(n, first) * math.comb(m, total - first) for first in range(reached, min(total, n) + 1))
    return ways / math.comb(n + m, total)
