"""Tests whether one rank waits less in the exchange than the others, by more than the noise or drift of equal ranks.

Two tests have to agree. The first counts the parts of the training in which a rank waits least, so a rare long delay
is one part of many. The second compares the rank's lead with its scatter over the parts. If ranks drift, neighbouring
parts are alike and tell less than independent ones. So their autocorrelation reduces the number of parts that count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

MAX_PARTS = 12  # most parts into which a training is cut to compare ranks; longer parts level out rare delays
MIN_PARTS = 4  # fewer do not show whether the ranks drift
MIN_EFFECTIVE = 5.0  # fewest parts that count: twelve parts cannot estimate a higher autocorrelation
MAX_FALSE_SHARE = 0.01  # the first test's level: the share of runs with equal ranks, without drift, in which it may err
MAX_DRIFTING_SHARE = (
    0.005  # the second test's level; by simulation, 5 % of runs err if ranks drift within a fifth of it
)
EXCHANGE, WHOLE = "rank_exchange_ms", "rank_ms"


@dataclass(frozen=True)
class Lead:
    """A rank's lead: how much less it waits than the others, in parts of the training."""

    size: int  # the number of ranks
    num_least: int  # the number of parts in which it waits least
    num_parts: int
    num_effective: float  # the number of independent parts that tell as much
    errors: float  # the mean lead over its standard error

    @property
    def is_beyond_noise(self) -> bool:
        """Whether both tests name the rank. Bonferroni's correction allows for choosing the rank by its waits."""
        if self.num_parts < MIN_PARTS or not self.is_beyond_counts:
            return False
        return self.size * student_tail(self.errors, int(self.num_effective) - 1) <= MAX_DRIFTING_SHARE

    @property
    def is_beyond_counts(self) -> bool:
        """The first test, binomial: in each part, each of equal ranks waits least with a chance of 1 / size."""
        chance = 1.0 / self.size
        p = sum(
            math.comb(self.num_parts, count) * chance**count * (1.0 - chance) ** (self.num_parts - count)
            for count in range(self.num_least, self.num_parts + 1)
        )
        return self.size * p <= MAX_FALSE_SHARE


def leads(windows: Sequence[Mapping[str, Any]]) -> list[Lead]:
    """The lead of each rank over the mean of the others, in parts of the training; `windows` have the ranks' waits."""
    num_parts = min(MAX_PARTS, len(windows))
    parts = [
        _shares(windows[part * len(windows) // num_parts : (part + 1) * len(windows) // num_parts])
        for part in range(num_parts)
    ]
    least = [part.index(min(part)) if part.count(min(part)) == 1 else None for part in parts]
    size = len(parts[0]) if parts else 0
    by_rank = [[(sum(part) - part[rank]) / (size - 1) - part[rank] for part in parts] for rank in range(size)]
    effective = _num_effective(by_rank, num_parts)
    return [
        Lead(size, least.count(rank), num_parts, effective, _errors(own, effective)) for rank, own in enumerate(by_rank)
    ]


def _shares(windows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Each rank's wait in the exchange, as a share of the windows' time."""
    waits = [sum(column) for column in zip(*(values[EXCHANGE] for values in windows), strict=False)]
    whole = sum(max(values.get(WHOLE) or (0.0,)) for values in windows)
    return [wait / (whole or 1.0) for wait in waits]


def _num_effective(by_rank: Sequence[Sequence[float]], num_parts: int) -> float:
    """The number of independent parts that tell as much, by the autocorrelation of all ranks' leads at lag one.

    The estimate is too low in short series, by (1 + 3 rho) / n (Marriott and Pope 1954, Biometrika 41, 390-402).
    """
    if num_parts < MIN_PARTS:
        return float(num_parts)
    centred = [[lead - fmean(own) for lead in own] for own in by_rank]
    squares = sum(lead * lead for own in centred for lead in own)
    products = sum(first * second for own in centred for first, second in pairwise(own))
    raw = products / squares if squares else 0.0
    rho = min(0.99, max(0.0, (num_parts * raw + 1) / (num_parts - 3)))
    return max(num_parts * (1 - rho) / (1 + rho), min(MIN_EFFECTIVE, num_parts))


def _errors(own: Sequence[float], num_effective: float) -> float:
    if len(own) < MIN_PARTS:
        return 0.0
    error = stdev(own) / math.sqrt(num_effective)
    return fmean(own) / error if error else math.copysign(math.inf, fmean(own))


def student_tail(t: float, freedom: int) -> float:
    """The probability that Student's t, with a whole number of degrees of freedom, is above `t` >= 0.

    Abramowitz and Stegun 26.7.3 and 26.7.4; the supervisor need not import SciPy for it.
    """
    angle, odd = math.atan(t / math.sqrt(freedom)), freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(2 + odd, freedom, 2):
        term *= math.cos(angle) ** 2 * (number - 1) / number
        total += term
    within = math.sin(angle) * total
    return 0.5 - 0.5 * (2 / math.pi * (angle + within) if odd else within)
