"""How surely the best of several settings is the best, by how much it leads, and how many runs would tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from conf.metric import HIGHER
from tracking.analysis.audit.arithmetic.censored_means import Observations
from tracking.analysis.audit.arithmetic.pair_tests import sooner_p

FAR = 20.0  # logarithm of a factor; a bound beyond it counts as absent
POWER, MOST_RUNS = 0.8, 10_000


def level(num_tested: int) -> float:
    """The one-sided level of a comparison with the best: 2.5 % / the number of other settings."""
    return 0.05 / 2 / max(1, num_tested - 1)


def factor_bounds(way: str, better: Observations, worse: Observations, at: float) -> tuple[float, float] | None:
    """The bounds of the factor by which one setting is better than another, each at the one-sided level `at`.

    Between them lie the factors that the tests do not reject. A side with a run that never reached its target has a
    mean without a bound on its worse end. `way` is LOWER or HIGHER: which mean is better. None if a side has one run,
    or a mean is not above 0.
    """
    top, bottom = (better, worse) if way == HIGHER else (worse, better)
    both = ((top, bottom), (bottom, top))
    means = [float(numpy.mean(side.bounds(other))) if len(side) else 0.0 for side, other in both]
    if min(len(top), len(bottom)) < 2 or min(means) <= 0:
        return None
    middle = means[0] / means[1]
    low = _turn(lambda factor: sooner_p(bottom.scaled(factor), top) or 0.0, middle, -FAR, at)
    high = _turn(lambda factor: sooner_p(top, bottom.scaled(factor)) or 0.0, middle, FAR, at)
    open_low, open_high = (top, bottom) if top.higher else (bottom, top)
    return 0.0 if open_low.num_short else low or 0.0, math.inf if high is None or open_high.num_short else high


def _turn(p_value: Callable[[float], float], middle: float, far: float, at: float) -> float | None:
    """The factor at which the p-value crosses the level `at`, within e^|far| of `middle`; None without one."""
    rejects, accepts = far, -far  # logarithms: far away on its side the test rejects
    if p_value(middle * math.exp(rejects)) >= at or p_value(middle * math.exp(accepts)) <= at:
        return None
    for _ in range(80):
        half = (rejects + accepts) / 2
        rejects, accepts = (half, accepts) if p_value(middle * math.exp(half)) < at else (rejects, half)
    return middle * math.exp((rejects + accepts) / 2)


@dataclass(frozen=True)
class Wanted:
    """How many runs of each side would tell, and `most`, with the spread at the upper end of its interval."""

    better: int
    worse: int
    most: tuple[int, int] | None


def would_tell(better: Observations, worse: Observations, at: float) -> Wanted | None:
    """How many runs would tell; None for too many, if a run stopped short, a side has one run, or means are equal."""
    sides = (better, worse)
    if better.num_short + worse.num_short or min(map(len, sides)) < 2:
        return None
    if better.in_pairs(worse):  # The test has one sample, the differences: the other side is constant.
        sides = (better.gaps(worse), Observations([0.0] * len(worse)))
    fewest = min(map(len, sides))
    from scipy.special import chdtri

    # The upper end of the 80 % interval of a variance.
    wider = (fewest - 1) / float(chdtri(fewest - 1, 0.9))
    numbers = _fewest(sides, 1.0, at)
    return None if numbers is None else Wanted(*numbers, _fewest(sides, wider, at))


def _fewest(sides: tuple[Observations, Observations], wider: float, at: float) -> tuple[int, int] | None:
    distance = abs(float(numpy.mean(sides[0].numbers) - numpy.mean(sides[1].numbers)))
    if not distance > 0:
        return None
    n, step = min(map(len, sides)), 1

    def sizes(number: int) -> tuple[int, int]:
        return max(number, len(sides[0])), max(number, len(sides[1]))

    while power(sides, sizes(min(n + step, MOST_RUNS)), distance, wider, at) < POWER:
        if n + step >= MOST_RUNS:
            return None
        n, step = n + step, 2 * step
    high = min(n + step, MOST_RUNS)
    while high - n > 1:
        half = (n + high) // 2
        n, high = (n, half) if power(sides, sizes(half), distance, wider, at) >= POWER else (half, high)
    return sizes(high)


def power(
    sides: tuple[Observations, Observations], sizes: tuple[int, int], distance: float, wider: float, at: float
) -> float:
    """The power of a test of `sizes` runs, for means `distance` apart and `wider` times the observed variances."""
    from scipy.special import nctdtr, stdtrit

    parts = [
        max(wider * float(numpy.var(side.numbers, ddof=1)), (side.interval / 2) ** 2 * n / (n - 1)) / n
        for side, n in zip(sides, sizes, strict=True)
    ]
    total = sum(parts)
    if not total:
        return 1.0
    needed = sum(part / total * float(stdtrit(n - 1, at)) ** 2 for part, n in zip(parts, sizes, strict=True)) ** 0.5
    freedom = total**2 / sum(part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True))
    return 1.0 - float(nctdtr(freedom, distance / math.sqrt(total), needed))
