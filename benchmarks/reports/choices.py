"""Simulated cells of several settings: all pairs, the best one, the gate, and which reaches its target more often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy import stats

from benchmarks.reports.cells import LEVEL, SPREAD, Cell, coin, later, missing, normal
from benchmarks.reports.vectorised import Rows, Side, apart, before, sooner

EQUAL, SLOPE = 0.0, 0.05  # distance from the best setting to the worst, as a share of the mean


def settings(random: np.random.Generator, trials: int, num: int, n: int, noise: float, slope: float) -> list[Side]:
    """Times of `num` settings: on evaluations with this noise, or normal with a spread of 2 % if it is 0."""
    if noise:
        return [coin(random, trials, n, noise) for _ in range(num)]
    means = np.linspace(100, 100 * (1 + slope), num)
    return [later(normal(random, trials, n, 2 / SPREAD), mean - 100) for mean in means]


def any_apart(sides: list[Side], test: Callable[[Side, Side, float], Rows]) -> Rows:
    """Whether Holm's correction tells any pair of settings apart."""
    num_pairs = len(sides) * (len(sides) - 1) // 2
    verdicts = [
        test(first, second, LEVEL / num_pairs) for place, first in enumerate(sides) for second in sides[place + 1 :]
    ]
    return np.any(verdicts, axis=0)


def leads(sides: list[Side]) -> tuple[Rows, Rows]:
    """Index of the lowest mean for each trial, and whether it is the only candidate for the best."""
    means = np.stack([side.times.mean(axis=1) for side in sides])
    level, leader = LEVEL / (2 * (len(sides) - 1)), means.argmin(axis=0)
    alone = np.ones(len(leader), dtype=bool)
    for place, first in enumerate(sides):
        for other, second in enumerate(sides):
            if other != place:
                alone &= (leader != place) | sooner(first, second, level)
    return leader, alone


def lone(sides: list[Side]) -> Rows:
    return leads(sides)[1]


def uncovered(sides: list[Side], means: Rows) -> Rows:
    """Whether the interval of the leader's factor over the best other setting misses the true factor."""
    leader, _ = leads(sides)
    level, missed = LEVEL / (2 * (len(sides) - 1)), np.zeros(len(leader), dtype=bool)
    for place, side in enumerate(sides):
        others = [other for other in range(len(sides)) if other != place]
        factor = means[others].min() / means[place]
        above = np.all([sooner(side.scaled(factor), sides[other], level) for other in others], axis=0)
        below = np.any([sooner(sides[other], side.scaled(factor), level) for other in others], axis=0)
        missed |= (leader == place) & (above | below)
    return missed


def best_against_worst(sides: list[Side]) -> Rows:
    """The former verdict on evaluations: the lowest mean against the highest, at Bonferroni's level for all pairs."""
    means = np.stack([side.times.mean(axis=1) for side in sides])
    best, worst = means.argmin(axis=0), means.argmax(axis=0)
    num_pairs, apart_by = len(sides) * (len(sides) - 1) // 2, np.zeros(len(best), dtype=bool)
    for place, first in enumerate(sides):
        for other, second in enumerate(sides):
            if other != place:
                apart_by |= (best == place) & (worst == other) & before(first, second, LEVEL / num_pairs)
    return apart_by


def families() -> Iterator[Cell]:
    for num in (2, 4, 8):
        for n in (2, 3, 5, 10):
            for noise in (0.0, 0.001, 0.01):
                yield from family(num, n, noise)


def family(num: int, n: int, noise: float) -> Iterator[Cell]:
    """Cells of equal settings; for continuous times also of settings with one best."""
    case = f"{num} settings of {n} runs, {f'evaluations, noise {noise:.1%}' if noise else 'normal'}"
    true_means = np.full(num, 100.0)

    def of(judge: Callable[[list[Side]], Rows]) -> Callable[[np.random.Generator, int], Rows]:
        return lambda random, trials: judge(settings(random, trials, num, n, noise, EQUAL))

    yield Cell("all pairs", case, LEVEL, of(partial(any_apart, test=apart)), of(partial(any_apart, test=before)))
    yield Cell("a best one among equals", case, LEVEL, of(lone), of(best_against_worst))
    yield Cell("lead not in its interval", case, LEVEL, of(partial(uncovered, means=true_means)))
    if noise == 0:
        yield sloped(num, n, case)


def sloped(num: int, n: int, case: str) -> Cell:
    """A cell with 5 % from the best setting to the worst. Error: a wrong one is named; power: the right one."""

    def wrong(random: np.random.Generator, trials: int) -> Rows:
        leader, alone = leads(settings(random, trials, num, n, 0.0, SLOPE))
        return alone & (leader != 0)

    def right(random: np.random.Generator, trials: int) -> Rows:
        leader, alone = leads(settings(random, trials, num, n, 0.0, SLOPE))
        return alone & (leader == 0)

    return Cell("a wrong best one", f"{case}, 5 % slope", LEVEL, wrong, power=right)


def gate_sides(random: np.random.Generator, trials: int, n: int, slowdown: float) -> tuple[Side, Side]:
    """Candidate and baseline, with a spread of 2 %."""
    sides = [normal(random, trials, n, 2 / SPREAD) for _ in range(2)]
    return Side(sides[0].times + 100 * slowdown), sides[1]


def gates() -> Iterator[Cell]:
    """Cells of a gate with a margin of 3 %: passing or failing at the margin, its interval, and failing by misses."""
    for n in (3, 5, 10):

        def passes(random: np.random.Generator, trials: int, slowdown: float = 0.03, n: int = n) -> Rows:
            candidate, baseline = gate_sides(random, trials, n, slowdown)
            return sooner(candidate, baseline.scaled(1.03), LEVEL)

        def fails(random: np.random.Generator, trials: int, slowdown: float = 0.03, n: int = n) -> Rows:
            candidate, baseline = gate_sides(random, trials, n, slowdown)
            return sooner(baseline.scaled(1.03), candidate, LEVEL)

        def outside(random: np.random.Generator, trials: int, n: int = n) -> Rows:
            candidate, baseline = gate_sides(random, trials, n, 0.03)
            return apart(candidate, baseline.scaled(1.03), LEVEL)

        def cut(random: np.random.Generator, trials: int, n: int = n) -> Rows:
            candidate, baseline = gate_sides(random, trials, n, 0.0)
            baseline, candidate = missing(0.5, "first")(random, baseline, candidate)
            return sooner(baseline.scaled(1.03), candidate, LEVEL)

        yield Cell("gate passes", f"{n} runs a side, 3 % slower; power: 0 %", LEVEL, passes,
                   power=partial(passes, slowdown=0.0))  # fmt: skip
        yield Cell("gate fails", f"{n} runs a side, 3 % slower; power: 6 %", LEVEL, fails,
                   power=partial(fails, slowdown=0.06))  # fmt: skip
        yield Cell("gate's interval", f"{n} runs a side, does not hold 3 %", LEVEL, outside)
        yield Cell("gate fails", f"{n} runs a side, as fast, half of the baseline's missed", LEVEL, cut)


def often() -> Iterator[Cell]:
    """Cells of two settings that reach their target equally often within a common budget; power: in 90 % and 20 %."""
    for n, m in [(2, 2), (3, 3), (5, 5), (10, 10), (20, 20), (3, 20), (5, 20)]:
        for share in (0.8, 0.5, 0.2):

            def verdict(random: np.random.Generator, trials: int, shares: tuple[float, float] = (share, share),
                     n: int = n, m: int = m) -> Rows:  # fmt: skip
                first, second = random.binomial(n, shares[0], trials), random.binomial(m, shares[1], trials)
                total = first + second
                more = stats.hypergeom.sf(first - 1, n + m, total, n), stats.hypergeom.sf(second - 1, n + m, total, m)
                return 2 * np.minimum(*more) < LEVEL

            yield Cell("more often", f"{n} and {m} runs, {share:.0%} reach it", LEVEL, verdict,
                       power=partial(verdict, shares=(0.9, 0.2)))  # fmt: skip
