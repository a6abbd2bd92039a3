"""The permutation log-rank test (Heinze, Gnant and Schemper 2003, Biometrics 59, 1151-1157), to compare with ours.

Times are permuted among the runs, but each run keeps its budget, so settings need not have the same budget. A censored
time is first drawn from both sides' Kaplan-Meier estimate beyond the budget; it is infinite if no later time was seen.
Our budgets are known, so the paper's draw of budgets is not needed.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.reports.vectorised import Rows, Side

PERMUTATIONS = 99
AT_ONCE = 500  # trials, limited by memory


def log_rank(random: np.random.Generator, first: Side, second: Side, level: float) -> Rows:
    """Whether the two-sided test tells the sides apart at `level`, by the observed order and 99 permutations."""
    budgets = np.concatenate([np.full(first.n, first.end), np.full(second.n, second.end)])
    times = np.concatenate([first.times, second.times], axis=1)
    chunks = [_told(random, times[at : at + AT_ONCE], budgets, first.n, level) for at in range(0, len(times), AT_ONCE)]
    return np.concatenate(chunks)


def _told(random: np.random.Generator, times: Rows, budgets: Rows, n: int, level: float) -> Rows:
    observed = statistic(random, times, budgets, n)
    filled, as_extreme = imputed(random, times, budgets), np.ones(len(times))
    for _ in range(PERMUTATIONS):
        as_extreme += statistic(random, random.permuted(filled, axis=1), budgets, n) >= observed - 1e-9
    return as_extreme / (PERMUTATIONS + 1) <= level


def in_order(random: np.random.Generator, times: Rows, budgets: Rows) -> tuple[Rows, Rows]:
    """Order by known times with random ties, and which runs reached the target, in that order."""
    arrived = np.isfinite(times) & (times <= budgets)
    order = np.lexsort((random.random(times.shape), ~arrived, np.minimum(times, budgets)), axis=1)
    return order, np.take_along_axis(arrived, order, axis=1)


def statistic(random: np.random.Generator, times: Rows, budgets: Rows, n: int) -> Rows:
    """Chi squared of observed against expected arrivals of the first n runs; 0 if the variance is 0."""
    order, arrived = in_order(random, times, budgets)
    first = order < n
    share = np.cumsum(first[:, ::-1], axis=1)[:, ::-1] / np.arange(times.shape[1], 0, -1)
    excess, variance = (arrived * (first - share)).sum(axis=1), (arrived * share * (1 - share)).sum(axis=1)
    return np.divide(np.square(excess), variance, out=np.zeros(len(times)), where=variance > 0)


def imputed(random: np.random.Generator, times: Rows, budgets: Rows) -> Rows:
    """The times; censored ones are drawn from the Kaplan-Meier estimate beyond the budget."""
    order, arrived = in_order(random, times, budgets)
    known = np.take_along_axis(np.minimum(times, budgets), order, axis=1)
    left = np.arange(times.shape[1], 0, -1)
    surviving = np.cumprod(np.where(arrived, 1 - 1 / left, 1.0), axis=1)
    drawn = surviving * random.random(times.shape)  # the level of survival at which the run arrives
    reached = arrived[:, None, :] & (surviving[:, None, :] <= drawn[:, :, None] + 1e-12)
    later = np.where(reached, known[:, None, :], math.inf).min(axis=2)
    filled = np.empty_like(times)
    np.put_along_axis(filled, order, np.where(arrived, known, later), axis=1)
    return filled
