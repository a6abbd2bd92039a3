"""Whether runs of one setting reach the target before those of another, if some runs did not reach it."""

from __future__ import annotations

import math

import numpy

from tracking.analysis.audit.arithmetic.censored_means import Observations
from tracking.analysis.audit.arithmetic.t_tests import p_of_distance


def won(sooner: Observations, later: Observations) -> numpy.ndarray:
    """For each pair of runs (n x m), whether the first is known to be the sooner one."""
    later_times = numpy.array([*later.numbers, *later.censored, *later.never * [math.inf]])
    times = numpy.array([*sooner.numbers, *sooner.num_short * [math.inf]])
    return times[:, None] < later_times[None, :]


def p_by_ranks(sooner: Observations, later: Observations) -> float:
    """The largest of three p-values: Mann and Whitney's U without ties, Brunner and Munzel's variances, and a coin."""
    table = won(sooner, later)
    n, m = table.shape
    share = float(table.mean())
    if share <= 0.5:
        return 1.0
    means = [(table.mean(axis=axis), size) for axis, size in ((1, n), (0, m))]
    parts = tuple((float(numpy.var(shares, ddof=1)) / size, size - 1) for shares, size in means)
    spread = p_of_distance(share - 0.5, parts) / 2 if parts[0][0] + parts[1][0] else 0.0
    coin: float = 0.5 ** (min(n, m) + 1)
    return max(coin, spread, at_least(int(table.sum()), n, m))


def at_least(wins: int, n: int, m: int) -> float:
    """The probability of `wins` or more among n x m pairs, if all orders of the n + m runs are equally likely."""
    counts = orders(n, m)
    return sum(counts[wins:]) / sum(counts)


def orders(n: int, m: int) -> list[int]:
    """How many orders of n and m runs have 0, 1, ... n x m wins: the Gaussian binomial coefficient's own coefficients.

    It is the product of (1 - q^(m + i)) / (1 - q^i) over i from 1 to n.
    """
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for wins in range(n * m, m + i - 1, -1):
            counts[wins] -= counts[wins - m - i]
        for wins in range(i, n * m + 1):
            counts[wins] += counts[wins - i]
    return counts
