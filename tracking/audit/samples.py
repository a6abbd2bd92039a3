"""The arithmetic of a report once more: means, ratios, tests, and whether a text says these numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from tracking.audit import shares

# Step times are journaled to a tenth of a microsecond: rates computed from them are that coarse.
EXACT, COARSE = 1e-9, 1e-4
NUMBER = r"-?[\d,]+(?:\.\d+)?"
Moments = tuple[int, float, float | None, float | None]  # n, mean, standard error, olympic mean


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


@dataclass(frozen=True)
class Observations:
    """A figure's numbers, of runs that stopped short what it is at least, and how many of them never get there."""

    numbers: Sequence[float]
    bounds: Sequence[float] = ()
    never: int = 0

    def __len__(self) -> int:
        return len(self.numbers) + self.num_short

    @property
    def num_short(self) -> int:
        return len(self.bounds) + self.never

    @property
    def largest(self) -> float:
        return float(max([*self.numbers, *self.bounds], default=0.0))

    def with_missed_early(self, largest: float) -> list[float]:
        return [*self.numbers, *self.bounds] + self.never * [largest]

    def with_missed_late(self, largest: float) -> list[float]:
        return [*self.numbers] + self.num_short * [2 * largest]


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


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's formula."""
    from scipy.special import ndtri

    z = float(ndtri(0.975))
    centre = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def is_rate(key: str) -> bool:
    return key.startswith("throughput/samples")


def more_is_better(key: str) -> bool:
    return is_rate(key) or (key.startswith(("eval/", "test/")) and not less_is_better(key))


def less_is_better(metric: str) -> bool:
    """Whether less is better of what a model is evaluated by: a loss or an error, by its name."""
    names = ("loss", "perplexity", "ppl", "error", "err", "mse", "mae", "rmse", "nll", "wer", "cer")
    return metric.lower().endswith(names)


def meets(value: float | None, target: str) -> bool:
    if value is None or math.isnan(value):
        return False
    return value <= float(target[2:]) if target.startswith("<=") else value >= float(target)


def tolerance(key: str) -> float:
    return COARSE if key.startswith("throughput/") else EXACT


def step(key: str) -> float:
    """How far apart two values are at the least: epochs are counted, all else is measured."""
    return 1.0 if key.startswith("epochs/") else 0.0


def moments_of(sample: Observations, scale: float = 1.0) -> Moments | None:
    """Those of a sample that has a number: the mean is at least so large where runs stopped short.

    The olympic mean drops the best and a run that stopped short, or the worst; there is none where more stopped short.
    """
    numbers = [scale * number for number in sample.with_missed_early(sample.largest)]
    if not sample.numbers and not sample.bounds:
        return None
    n, middle, error, olympic = moments(numbers)
    if sample.num_short == 1 and n >= 5:
        olympic = float(numpy.mean(numpy.sort([scale * number for number in sample.numbers])[1:]))
    return n, middle, error, None if sample.num_short > 1 else olympic


def marked(text: str, sample: Observations) -> bool:
    """Whether a printed mean says that it is a bound where it is one, and that there is no olympic mean."""
    invalid = len(sample) >= 5 and sample.num_short > 1
    return text.startswith("≥ ") == bool(sample.num_short) and ("(olympic invalid)" in text) == invalid


def moments(values: Sequence[float]) -> Moments:
    n = len(values)
    middle = float(numpy.mean(values))
    error = float(numpy.std(values, ddof=1) / numpy.sqrt(n)) if n > 1 else None
    return n, middle, error, float(numpy.mean(numpy.sort(values)[1:-1])) if n >= 5 else None


def ratio(key: str, own: Observations, base: Observations, growth: float, same: bool) -> tuple[Moments, str] | None:
    """Speed-up over the base, divided by the growth (1, or of an efficiency that of the devices); relative variances
    of two independent means add. With the sign of a bound. `same`: it is the base itself, of which it is 1.

    None where a mean is not known or both are only known to be at least so large.
    """
    mine, others = moments_of(own), moments_of(base)
    if mine is None or others is None:
        return None
    (n, top, top_error, _), (m, bottom, bottom_error, _) = mine, others
    if same:
        return (n, 1.0, None, None), ""
    if own.num_short and base.num_short:
        return None
    sign = "≤" if own.num_short else "≥" if base.num_short else ""
    factor = (top / bottom if more_is_better(key) else bottom / top) / growth
    if top_error is None or bottom_error is None:
        return (min(n, m), factor, None, None), sign
    error = factor * math.sqrt((top_error / top) ** 2 + (bottom_error / bottom) ** 2)
    return (min(n, m), factor, error, None), sign


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


def close(claimed: float | None, expected: float | None, near: float, size: float) -> bool:
    if claimed is None or expected is None:
        return claimed is expected
    return math.isclose(claimed, expected, rel_tol=near, abs_tol=near * abs(size))


def printed(text: str, numbers: Sequence[float | None], near: float) -> bool:
    """Whether the words say these numbers, rounded to the digits that they show."""
    shown = re.findall(NUMBER, text)
    there = [number for number in numbers if number is not None]
    if len(shown) != len(there):
        return False
    for words, number in zip(shown, there, strict=True):
        half_a_digit = 0.5 * 10.0 ** -len(words.partition(".")[2])
        if abs(float(words.replace(",", "")) - number) > half_a_digit * (1 + 1e-6) + near * abs(number):
            return False
    return True


def significant(text: str, number: float | None, digits: int, near: float) -> bool:
    """Whether the text is the number, rounded to so many significant digits."""
    if number is None or not text:
        return number is None and not text
    unit = 10.0 ** (math.floor(math.log10(abs(number))) - digits + 1) if number else 0.0
    return abs(float(text) - number) <= 0.5 * unit * (1 + 1e-6) + near * max(abs(number), 1.0)


def says_mean(sample: Observations, scale: float, text: str, near: float) -> bool:
    expected = moments_of(sample, scale)
    if expected is None:
        return not text
    return marked(text, sample) and says(text, len(sample), expected[1:], near)


def says(text: str, n: int, numbers: Sequence[float | None], near: float) -> bool:
    """Whether a cell says these numbers; where it says of how many runs, whether those are n."""
    words, _, of = text.partition(" (n=")
    return (not of or of == f"{n})") and printed(words, numbers, near)
