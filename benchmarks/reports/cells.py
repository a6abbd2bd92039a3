"""Simulated cells: settings with a known truth, and whether a report or a gate errs on them.

Times that fall on evaluations are five or six intervals of 10 s, by the toss of a coin, with noise on an interval's
length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.reports.log_rank import log_rank
from benchmarks.reports.vectorised import Rows, Side, apart, before

MEAN, SPREAD, LEVEL = 100.0, 10.0, 0.05
Draw = Callable[[np.random.Generator, int, int, float], Side]  # random, trials, n, spread over SPREAD

Draws = Callable[[np.random.Generator, int], tuple[Side, Side]]


@dataclass(frozen=True)
class Cell:
    """A row of the table. `error` is True for each trial with a wrong verdict, `power` for each with a right one.

    `known`: a known error rate above the nominal one, or 0. A cell fails if its rate is above both.
    """

    family: str
    case: str
    nominal: float
    error: Callable[[np.random.Generator, int], Rows]
    was: Callable[[np.random.Generator, int], Rows] | None = None  # `error` by the former test
    power: Callable[[np.random.Generator, int], Rows] | None = None
    rank: Callable[[np.random.Generator, int], Rows] | None = None  # `error` by the permutation log-rank test
    trials: int = 0  # minimum
    known: float = 0.0


def normal(random: np.random.Generator, trials: int, n: int, spread: float) -> Side:
    return Side(random.normal(MEAN, SPREAD * spread, (trials, n)))


def lognormal(random: np.random.Generator, trials: int, n: int, spread: float) -> Side:
    sigma = math.sqrt(math.log1p((SPREAD * spread / MEAN) ** 2))
    return Side(MEAN * random.lognormal(-(sigma**2) / 2, sigma, (trials, n)))


def heavy(random: np.random.Generator, trials: int, n: int, spread: float) -> Side:
    """Student's t with three degrees of freedom."""
    return Side(MEAN + SPREAD * spread * random.standard_t(3, (trials, n)) / math.sqrt(3))


def coin(random: np.random.Generator, trials: int, n: int, noise: float, first: int = 5) -> Side:
    """Five or six evaluations (`first` or one more), 10 s apart, with noise of each run."""
    length = 10.0 * (1 + noise * random.normal(size=(trials, n)))
    return Side(random.integers(first, first + 2, (trials, n)) * length, interval=length.mean(axis=1))


def later(side: Side, by: float) -> Side:
    return Side(side.times + by, side.end, side.interval)


def pair(
    family: str, draw: Draw, n: int, m: int, spread: float, shift: float, alter: Callable[..., tuple[Side, Side]],
    case: str = "",
) -> Cell:  # fmt: skip
    """Two settings with equal means. The second has spread 1, or the same noise; `power` shifts it by `shift`."""

    def sides(random: np.random.Generator, trials: int, by: float) -> tuple[Side, Side]:
        second_spread = 1.0 if draw is not coin else spread
        return alter(random, draw(random, trials, n, spread), later(draw(random, trials, m, second_spread), by))

    def error(random: np.random.Generator, trials: int) -> Rows:
        return apart(*sides(random, trials, 0.0), LEVEL)

    def was(random: np.random.Generator, trials: int) -> Rows:
        return before(*sides(random, trials, 0.0), LEVEL)

    def power(random: np.random.Generator, trials: int) -> Rows:
        return apart(*sides(random, trials, shift), LEVEL)

    def rank(random: np.random.Generator, trials: int) -> Rows:
        return log_rank(random, *sides(random, trials, 0.0), LEVEL)

    name = f"{n} and {m} runs, {case or f'spread {spread:g}'}"
    return Cell(family, name, LEVEL, error, was, power, rank if alter is not as_drawn else None)


def as_drawn(random: np.random.Generator, first: Side, second: Side) -> tuple[Side, Side]:
    return first, second


def missing(share: float, where: str) -> Callable[..., tuple[Side, Side]]:
    """A function that lets `share` of the runs diverge, or ends one or both budgets where `share` of `first` miss."""

    def alter(random: np.random.Generator, first: Side, second: Side) -> tuple[Side, Side]:
        if where == "diverged":
            times = [
                np.where(random.random(side.times.shape) < share, math.inf, side.times) for side in (first, second)
            ]
            return Side(times[0]), Side(times[1])
        end = float(np.quantile(first.times, 1 - share))
        return Side(first.times, end), Side(second.times, end if where == "both" else math.inf)

    return alter


SIZES = [(2, 2), (3, 3), (5, 5), (10, 10), (20, 20), (2, 5), (2, 20), (3, 20), (4, 20), (5, 20)]
MARGINAL = [(3, 20), (4, 20)]
MANY = 40_000  # trials where a rate is close to the nominal one
HALF = 5.0  # a spread of half the mean
# Highest known error rate of lognormal times with a spread of half the mean, beside a fifth of that spread. No test
# of means holds its level for all distributions (Bahadur and Savage 1956, Annals of Mathematical Statistics 27,
# 1115-1122).
SKEWED = 0.08


def pairs() -> Iterator[Cell]:
    for n, m in SIZES:
        for spread in (0.2, 1.0, 5.0):
            yield pair("normal", normal, n, m, spread, 3 * SPREAD, as_drawn)
        yield pair("lognormal", lognormal, n, m, 1.0, 3 * SPREAD, as_drawn)
        yield from skewed(n, m)
        yield pair("heavy-tailed", heavy, n, m, 1.0, 3 * SPREAD, as_drawn)
        for noise in (0.001, 0.01, 0.05):
            yield pair("evaluations", coin, n, m, noise, 15.0, as_drawn, f"noise {noise:.1%}")
        for share in (0.2, 0.5):
            for where in ("first", "both", "diverged"):
                case = f"{share:.0%} {'diverge' if where == 'diverged' else f'cut, {where}'}"
                for spread in (1.0,) if where == "diverged" else (0.2, 1.0, 5.0):
                    label = f"{case}, spread {spread:g}"
                    cell = pair("misses", normal, n, m, spread, 4 * SPREAD, missing(share, where), label)
                    yield replace(cell, trials=MANY) if (n, m) in MARGINAL and "cut, first, spread 5" in label else cell


def skewed(n: int, m: int) -> Iterator[Cell]:
    """Lognormal times with a spread of half the mean: on both sides, and on the first alone."""
    for other, where, known in ((HALF, "of both", 0.0), (1.0, "of the first", SKEWED)):

        def sides(random: np.random.Generator, trials: int, other: float = other) -> tuple[Side, Side]:
            return lognormal(random, trials, n, HALF), lognormal(random, trials, m, other)

        def error(random: np.random.Generator, trials: int, draw: Draws = sides) -> Rows:
            return apart(*draw(random, trials), LEVEL)

        def was(random: np.random.Generator, trials: int, draw: Draws = sides) -> Rows:
            return before(*draw(random, trials), LEVEL)

        case = f"{n} and {m} runs, spread {where} half the mean"
        yield Cell("skewed", case, LEVEL, error, was, trials=MANY, known=known)
