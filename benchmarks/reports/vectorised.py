"""A report's tests, vectorised: a row for each trial. test_error_rates compares them with the product's.

A test returns, for each row, whether it tells the sides apart at `level`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from tracking.analysis.statistics import CUT_OFF

Rows = np.ndarray


@dataclass(frozen=True)
class Side:
    """Times of runs [trials, n], infinite if diverged; end of the budget; interval between evaluations, by row."""

    times: Rows
    end: float = math.inf
    interval: Rows | float = 0.0

    @property
    def n(self) -> int:
        return self.times.shape[1]

    @property
    def short(self) -> Rows:
        return ~np.isfinite(self.times) | (self.times > self.end)

    @property
    def known(self) -> Rows:
        """Times, with the end of the budget for later runs, and -inf for diverged ones."""
        return np.where(np.isfinite(self.times), np.minimum(self.times, self.end), -math.inf)

    def at_least(self, latest: Rows) -> Rows:
        """Lower bounds of the times; a diverged run has the latest known time of both sides."""
        return np.where(np.isfinite(self.times), np.minimum(self.times, self.end), latest[:, None])

    def scaled(self, factor: float) -> Side:
        return Side(self.times * factor, self.end * factor, self.interval * factor)


def floored(values: Rows, interval: Rows | float) -> Rows:
    n = values.shape[1]
    return np.maximum(values.var(axis=1, ddof=1), np.square(interval) / 4 * n / (n - 1))


def beyond(distance: Rows, parts: tuple[Rows, Rows], freedoms: tuple[int, int], level: float) -> Rows:
    """Whether distances exceed the critical value of Banerjee's test at a one-sided level."""
    critical = sum(part * stats.t.isf(level, freedom) ** 2 for part, freedom in zip(parts, freedoms, strict=True))
    return (distance > 0) & (np.square(distance) > critical)


def below(first: Rows, second: Rows, variances: tuple[Rows, Rows], level: float) -> Rows:
    n, m = first.shape[1], second.shape[1]
    parts = variances[0] / n, variances[1] / m
    return beyond(second.mean(axis=1) - first.mean(axis=1), parts, (n - 1, m - 1), level)


def sooner(first: Side, second: Side, level: float) -> Rows:
    """Whether `first` is found to be sooner at a one-sided level (statistics.p_sooner)."""
    short, other_short = first.short.any(axis=1), second.short.any(axis=1)
    latest = np.maximum(first.known.max(axis=1), second.known.max(axis=1))
    values, bounds = first.at_least(latest), second.at_least(latest)
    variances = floored(values, first.interval), floored(bounds, second.interval)
    verdicts = below(values, bounds, variances, level)
    if other_short.any():
        wider = variances[0], np.maximum(*variances)
        of_bounds = below(values, bounds, wider, level / CUT_OFF) & (0.5 ** (first.n + second.n) < level)
        verdicts = np.where(other_short, of_bounds, verdicts)
    ranked = short | ~np.isfinite(second.times).any(axis=1)
    if ranked.any():
        verdicts[ranked] = by_ranks(Side(first.times[ranked], first.end), Side(second.times[ranked], second.end), level)
    return verdicts


def by_ranks(first: Side, second: Side, level: float) -> Rows:
    """Verdicts of statistics.sooner.rank_p at a one-sided level."""
    n, m = first.n, second.n
    values = np.where(first.short, math.inf, first.times)
    against = np.where(np.isfinite(second.times), np.minimum(second.times, second.end), math.inf)
    wins = values[:, :, None] < against[:, None, :]
    won, lost = wins.sum(axis=2), wins.sum(axis=1)
    count = won.sum(axis=1)
    share = count / (n * m)
    parts = won.var(axis=1, ddof=1) / m**2 / n, lost.var(axis=1, ddof=1) / n**2 / m
    verdicts = beyond(share - 0.5, parts, (n - 1, m - 1), level)
    return verdicts & (tails_of_wins(n, m)[count] < level) & (0.5 ** (min(n, m) + 1) < level)


@lru_cache(maxsize=100)
def tails_of_wins(n: int, m: int) -> Rows:
    """Probability of at least k wins of n m pairs (Mann and Whitney 1947), for k from 0 to n m."""
    shares: dict[tuple[int, int], Rows] = {}
    for i in range(n + 1):
        for j in range(m + 1):
            share = np.zeros(i * j + 1)
            if i and j:
                share[j:] += shares[i - 1, j] * i / (i + j)
                share[: i * (j - 1) + 1] += shares[i, j - 1] * j / (i + j)
            else:
                share[0] = 1.0
            shares[i, j] = share
    return np.cumsum(shares[n, m][::-1])[::-1]


def apart(first: Side, second: Side, level: float) -> Rows:
    """Whether two settings are told apart at a two-sided level."""
    return sooner(first, second, level / 2) | sooner(second, first, level / 2)


def before(first: Side, second: Side, level: float) -> Rows:
    """The former test: the larger standard error, the smaller side's degrees of freedom, penalised misses."""
    return _before(first, second, level / 2) | _before(second, first, level / 2)


def _before(first: Side, second: Side, level: float) -> Rows:
    n, m = first.n, second.n
    latest = np.maximum(first.known.max(axis=1), second.known.max(axis=1))
    values = np.where(first.short, 2 * latest[:, None], first.times)
    bounds = second.at_least(latest)
    variances = values.var(axis=1, ddof=1), bounds.var(axis=1, ddof=1)
    pooled = ((n - 1) * variances[0] + (m - 1) * variances[1]) / (n + m - 2) * (1 / n + 1 / m)
    error = np.sqrt(np.maximum(variances[0] / n + variances[1] / m, pooled))
    distance = bounds.mean(axis=1) - values.mean(axis=1)
    short = first.short.any(axis=1) | second.short.any(axis=1)
    critical = stats.t.isf(np.where(short, level / 2, level), min(n, m) - 1)
    return (distance > critical * error) & (~short | (0.5 ** (n + m) < level))
