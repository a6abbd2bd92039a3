"""Samples of a figure with censored values: their means, and the ratio of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from conf.metric import HIGHER
from tracking.base import quantities

Moments = tuple[int, float, float | None, float | None]  # n, mean, standard error, olympic mean


@dataclass(frozen=True)
class Observations:
    """A figure's numbers, the lower bounds of runs that stopped short, and how many runs `never` reach the target.

    `missed` holds the bounds of runs that spent their own budget, `stopped` of runs that were ended from outside.
    `interval` is the spacing of numbers that fall on evaluations. `seeds` holds the numbers' seeds, in order, if they
    are to be paired. `higher`: higher numbers are better, and runs that never reach the target are below all others.
    """

    numbers: Sequence[float]
    missed: Sequence[float] = ()
    stopped: Sequence[float] = ()
    never: int = 0
    interval: float = 0.0
    seeds: tuple[str, ...] = ()
    higher: bool = False

    def __len__(self) -> int:
        return len(self.numbers) + self.num_short

    @property
    def num_short(self) -> int:
        return len(self.censored) + self.never

    @property
    def censored(self) -> list[float]:
        return [*self.missed, *self.stopped]

    @property
    def sign(self) -> str:
        """The sign of the mean: it is a bound if runs did not reach the target."""
        return ("≥", "≤")[self.higher] if self.num_short else ""

    def bounds(self, other: Observations | None = None) -> list[float]:
        """A bound of each run's number; of runs that never reach the target, the worst of both samples."""
        known = [*self.numbers, *self.censored, *([*other.numbers, *other.censored] if other else [])]
        worst = float((min if self.higher else max)(known)) if known else 0.0
        return [*self.numbers, *self.censored] + self.never * [worst]

    def upside_down(self) -> Observations:
        """The sample with its numbers negated, so that the better ones are on the other end."""
        return replace(self, numbers=[-number for number in self.numbers], higher=not self.higher)

    def stopped_behind(self, time: float) -> Observations:
        """The sample without runs that were stopped before `time`."""
        return replace(self, stopped=[when for when in self.stopped if when >= time])

    def in_pairs(self, other: Observations) -> bool:
        return len(self.seeds) >= 2 and self.seeds == other.seeds

    def gaps(self, other: Observations) -> Observations:
        """The difference of each pair."""
        between = [number - its for number, its in zip(self.numbers, other.numbers, strict=True)]
        return Observations(between, interval=math.hypot(self.interval, other.interval))

    def scaled(self, factor: float) -> Observations:
        numbers, missed, stopped = (
            [factor * value for value in values] for values in (self.numbers, self.missed, self.stopped)
        )
        return Observations(numbers, missed, stopped, self.never, factor * self.interval, self.seeds, self.higher)


def moments_of(sample: Observations, scale: float = 1.0) -> Moments | None:
    """The moments of a sample; the mean is a bound if runs stopped short. None without a number or bound.

    The olympic mean drops the best, and the run that stopped short or else the worst. None if several stopped short.
    """
    numbers = [scale * number for number in sample.bounds()]
    if not sample.numbers and not sample.censored:
        return None
    n, middle, error, olympic = moments(numbers)
    if sample.num_short == 1 and n >= 5:
        kept = slice(0, -1) if sample.higher else slice(1, None)
        olympic = float(numpy.mean(numpy.sort([scale * number for number in sample.numbers])[kept]))
    return n, middle, error, None if sample.num_short > 1 else olympic


def moments(values: Sequence[float]) -> Moments:
    n = len(values)
    middle = float(numpy.mean(values))
    spread = float(numpy.std(values, ddof=1)) if len({*values}) > 1 else 0.0  # A mean of equal values is rounded.
    error = spread / math.sqrt(n) if n > 1 else None
    return n, middle, error, float(numpy.mean(numpy.sort(values)[1:-1])) if n >= 5 else None


def ratio(key: str, own: Observations, base: Observations, growth: float, same: bool) -> tuple[Moments, str] | None:
    """The speed-up over the base, divided by `growth`; and the sign of a bound.

    `growth` is 1, or for an efficiency the growth of the devices. Relative variances of two independent means add.
    `same`: the setting is the base itself, with a ratio of 1. None if a mean or the direction is not known, if a mean
    is not above 0, or if both means are only bounds.
    """
    direction = quantities.better(key)
    own_moments, others = moments_of(own), moments_of(base)
    if own_moments is None or others is None or direction is None:
        return None
    (n, top, top_error, _), (m, bottom, bottom_error, _) = own_moments, others
    if min(top, bottom) <= 0:
        return None
    if same:
        return (n, 1.0, None, None), ""
    if own.num_short and base.num_short:
        return None
    sign = "≤" if own.num_short else "≥" if base.num_short else ""
    factor = (top / bottom if direction == HIGHER else bottom / top) / growth
    if top_error is None or bottom_error is None:
        return (min(n, m), factor, None, None), sign
    error = factor * math.sqrt((top_error / top) ** 2 + (bottom_error / bottom) ** 2)
    return (min(n, m), factor, error, None), sign


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    from scipy.special import ndtri

    z = float(ndtri(0.975))
    centre = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)
