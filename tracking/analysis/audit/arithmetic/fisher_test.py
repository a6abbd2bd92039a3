"""Fisher's exact test once more, of how many runs of two settings arrived by the end of the budget that both had."""

from __future__ import annotations

import math

from tracking.analysis.audit.arithmetic.censored_means import Observations

Table = tuple[int, int, int, int, float]  # reached and n of one setting, of the other; and by when


def tables(first: Observations, second: Observations) -> tuple[Table, Table]:
    """Up to the least time at which a run of either had spent its budget; from both sides.

    A run that was stopped before is in no count, nor is one whose budget was spent nobody knows when.
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
    """That the first has so many of the arrivals or more, if all ways to deal them out are as likely: one-sided."""
    reached, n, other, m, _ = counts
    total = reached + other
    ways = sum(math.comb(n, first) * math.comb(m, total - first) for first in range(reached, min(total, n) + 1))
    return ways / math.comb(n + m, total)
