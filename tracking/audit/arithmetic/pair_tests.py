"""Which of two settings is the better, by what factor, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from tracking.audit.arithmetic import shares
from tracking.audit.arithmetic.figure_keys import more_is_better, step
from tracking.audit.arithmetic.samples import Observations


@dataclass
class PairTest:
    better: str
    factor: float
    p: float | None
    corrected: float | None = None
    often: str = ""  # the one of the two that seems to reach the target more often, where runs missed it
    counts: shares.Table | None = None  # reached and n of that one, of the other
    ways: tuple[shares.Table, ...] = ()  # `counts`, and the other way to count where its p is the same
    often_p: float | None = None
    often_corrected: float | None = None

    @property
    def told_apart(self) -> bool:
        return self.corrected is not None and self.corrected < 0.05

    @property
    def more_often(self) -> str:
        return self.often if self.often_corrected is not None and self.often_corrected < 0.05 else ""


def pair_of(key: str, first_name: str, first: Observations, second_name: str, second: Observations) -> PairTest:
    """Which is the better, by what factor, how surely; what stopped short is late for the better, else early."""
    largest = max(first.largest, second.largest)
    if more_is_better(key):
        ahead = float(numpy.mean(first.numbers)) >= float(numpy.mean(second.numbers))
        means = sorted(float(numpy.mean(sample.numbers)) for sample in (first, second))
        p = t_test(first.numbers, second.numbers, step(key))
        return PairTest(first_name if ahead else second_name, means[1] / means[0] if means[0] > 0 else math.inf, p)
    gaps = [
        float(numpy.mean(worse.with_missed_early(largest)) - numpy.mean(better.with_missed_late(largest)))
        for better, worse in ((first, second), (second, first))
    ]
    better, worse = (first, second) if gaps[0] >= gaps[1] else (second, first)
    low, high = better.with_missed_late(largest), worse.with_missed_early(largest)
    ends = float(numpy.mean(low)), float(numpy.mean(high))
    factor = max(1.0, ends[1] / ends[0]) if ends[0] > 0 else math.inf
    p = t_test(low, high, step(key))
    if p is not None and first.num_short + second.num_short:
        tail = one_tail(low, high, step(key))
        coin = 0.5 ** (len(first) + len(second))  # the probability that so many runs fall so
        p = min(1.0, 4 * tail if 2 * tail > coin else 2 * coin)
    pair = PairTest(first_name if better is first else second_name, factor, p)
    return with_shares(pair, first_name, first, second_name, second) if first.num_short + second.num_short else pair


def with_shares(pair: PairTest, name: str, first: Observations, second_name: str, second: Observations) -> PairTest:
    if min(len(first), len(second)) < 2:
        return pair
    sides = ((first, second), (second, first))
    tables = [shares.table(side.numbers, len(side), len(rest.numbers), len(rest), rest.bounds) for side, rest in sides]
    ahead, counts = shares.more(*tables)
    p = shares.p_value(counts)
    ways = tuple(table for table in tables if shares.p_value(table) == p)
    return replace(pair, often=name if ahead else second_name, counts=counts, ways=ways, often_p=p)


def t_test(first: Sequence[float], second: Sequence[float], step: float) -> float | None:
    """Two-sided: the larger of Welch's and of Student's standard error, the smaller side's degrees of freedom."""
    if min(len(first), len(second)) < 2:
        return None
    tails = one_tail(first, second, step), one_tail(second, first, step)
    return min(1.0, 2 * min(tails))


def one_tail(low: Sequence[float], high: Sequence[float], step: float) -> float:
    """The p-value for the true mean of the one being below that of the other."""
    from scipy.special import stdtr

    sizes = numpy.array([len(low), len(high)])
    variances = variances_of(low, high, step)
    distance = float(numpy.mean(low) - numpy.mean(high))
    pooled = (sizes - 1) @ variances / (sizes.sum() - 2)
    squared = max(float((variances / sizes).sum()), float((pooled / sizes).sum()))
    if squared <= (1e-12 * max(float(numpy.mean(low)), float(numpy.mean(high)))) ** 2:  # nothing but rounding
        return 0.0 if distance < -1e-12 * abs(float(numpy.mean(low))) else 1.0
    return float(stdtr(int(sizes.min()) - 1, distance / math.sqrt(squared)))


def variances_of(first: Sequence[float], second: Sequence[float], step: float) -> numpy.ndarray:
    """At least those of values rounded to steps."""
    return numpy.array([max(numpy.var(side, ddof=1), step**2 / 12) for side in (first, second)])


def corrected(ranked: Sequence[float], p: float) -> float:
    """Holm: the largest of (number of tests not yet rejected) x p over this and all smaller p-values."""
    return min(1.0, max((len(ranked) - place) * value for place, value in enumerate(ranked) if value <= p))
