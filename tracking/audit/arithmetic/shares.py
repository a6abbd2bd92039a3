"""Fisher's exact test once more, of how many runs of two settings got to their target."""

from __future__ import annotations

import math
from collections.abc import Sequence

Table = tuple[int, int, int, int]  # reached and n of one setting, of the other


def table(numbers: Sequence[float], n: int, num_others: int, m: int, others_bounds: Sequence[float]) -> Table:
    """Of the one, what was reached up to the least of the other's bounds; of the other, all."""
    least = min(others_bounds, default=math.inf)
    return sum(number <= least for number in numbers), n, num_others, m


def p_value(counts: Table) -> float:
    """That the first has so many of the successes or more, if all ways to deal them out are as likely: two-sided."""
    reached, n, other, m = counts
    total = reached + other
    ways = sum(math.comb(n, first) * math.comb(m, total - first) for first in range(reached, min(total, n) + 1))
    return min(1.0, 2 * ways / math.comb(n + m, total))


def more(first: Table, second: Table) -> tuple[bool, Table]:
    """Of the two ways to compare two settings, that which tells more: whether it is the first, and its counts."""
    ahead = p_value(first) <= p_value(second)
    return ahead, first if ahead else second
