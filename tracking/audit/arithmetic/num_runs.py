"""How many runs would tell two settings apart, and the bounds of the factor between them, once more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy

from tracking.audit.arithmetic.figure_keys import is_rate, more_is_better, step
from tracking.audit.arithmetic.pair_tests import one_tail, variances_of
from tracking.audit.arithmetic.samples import Observations

MOST_RUNS = 10_000  # a side; beyond that a report gives no number
Level = Callable[[int], float]  # the level of a one-sided test, by its degrees of freedom


def would_tell(n: int, first: Sequence[float], second: Sequence[float], step: float, level: Level) -> bool:
    """Whether n runs a side are the fewest, and more than there are, whose test would tell these means apart.

    In four cases of five, were they the true ones; to a thousandth, as a noncentral t is computed in several ways.
    Never of a side of one run, or of runs that cannot scatter.
    """
    if min(len(first), len(second)) < 2 or not variances_of(first, second, step).any():
        return False
    least = 1 + min(len(first), len(second))
    powers = [power(number, first, second, step, level) for number in (n, n - 1)]
    return n >= least and powers[0] > 0.799 and (n == least or powers[1] < 0.801)


def power(n: int, first: Sequence[float], second: Sequence[float], step: float, level: Level) -> float:
    """In what share of cases n runs a side would tell these means apart, were they and their spread the true ones."""
    from scipy.special import nctdtr, stdtrit

    variance = float(variances_of(first, second, step).sum())
    distance = abs(float(numpy.mean(first) - numpy.mean(second)))
    needed = -stdtrit(n - 1, level(n - 1))
    return 1.0 - float(nctdtr(n - 1, distance / math.sqrt(variance / n), needed))


def has_bounds(key: str, better: Observations, worse: Observations) -> bool:
    """Whether there is an interval of the factor between two settings: of means above 0 that are no whole numbers."""
    largest = max(better.largest, worse.largest)
    means = [float(numpy.mean(sample.with_missed_early(largest))) for sample in (better, worse)]
    return step(key) == 0 and min(means) > 0


def bounds_hold(
    key: str, better: Observations, worse: Observations, low: float, high: float | None, level: float
) -> bool:  # fmt: skip
    """Whether the test of a factor just rejects what is below `low`, and what is above `high` (None: nothing is)."""
    top, bottom = (better, worse) if more_is_better(key) else (worse, better)
    far = math.exp(20)  # what is further away is called no bound
    # Rates are journaled rounded, by which a p-value shifts somewhat more than they do.
    near, off = (1e-3, 1e-2) if is_rate(key) else (1e-6, 1e-6)

    def below(factor: float) -> float:
        return _one_sided(_times(bottom, factor), top)

    def above(factor: float) -> float:
        return _one_sided(top, _times(bottom, factor))

    def turns(p_value: Callable[[float], float], factor: float) -> bool:
        """Whether a p-value passes its level at this factor."""
        ends = sorted(p_value(factor * (1 + shift)) for shift in (-near, near))
        return ends[0] <= level * (1 + off) and ends[1] >= level * (1 - off)

    middle = float(numpy.mean(top.numbers or top.bounds) / numpy.mean(bottom.numbers or bottom.bounds))
    good = turns(below, low) if low else below(middle / far) >= level * (1 - off)
    return good and (turns(above, high) if high is not None else above(middle * far) >= level * (1 - off))


def _times(sample: Observations, factor: float) -> Observations:
    numbers, bounds = ([factor * value for value in values] for values in (sample.numbers, sample.bounds))
    return Observations(numbers, bounds, sample.never)


def _one_sided(low: Observations, high: Observations) -> float:
    """The p-value for the true mean of the one being below that of the other; what stopped short counts against it."""
    largest = max(low.largest, high.largest)
    tail = one_tail(low.with_missed_late(largest), high.with_missed_early(largest), 0.0)
    if not low.num_short + high.num_short:
        return tail
    return min(1.0, max(2 * tail, 0.5 ** (len(low) + len(high))))
