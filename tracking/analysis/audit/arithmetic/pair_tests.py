"""Which of two settings is the better, by what factor, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from conf.metric import HIGHER, LOWER
from tracking.analysis.audit.arithmetic.censored_means import Observations
from tracking.analysis.audit.arithmetic.rank_test import p_by_ranks, won
from tracking.analysis.audit.arithmetic.t_tests import p_below, p_below_bounds, p_below_in_pairs

NEAR = 1e-9  # p-values and means that are closer than this may be in either order
Table = tuple[int, int, int, int, float]  # reached and n of one setting, of the other; and by when


@dataclass(frozen=True)
class PairTest:
    """The tests of two settings; `better` leads.

    `factor` is infinite if none is known. `turned` is the pair the other way round, if the two are equal. `often` is
    the setting that seems to reach the target more often; `counts` begins with it. `ways` holds `counts`, and the
    counts that begin with the other setting if their p-value is equal.
    """

    better: str
    factor: float
    p: float | None
    turned: PairTest | None = None
    often: str = ""
    counts: Table | None = None
    ways: tuple[Table, ...] = ()
    often_p: float | None = None
    corrected: float | None = None
    often_corrected: float | None = None
    paired: bool = False  # runs of the same seed were compared

    @property
    def told_apart(self) -> bool:
        return self.corrected is not None and self.corrected < 0.05

    @property
    def more_often(self) -> str:
        return self.often if self.often_corrected is not None and self.often_corrected < 0.05 else ""


def pair_of(way: str, first_name: str, first: Observations, second_name: str, second: Observations) -> PairTest:
    """The tests of two settings. The better one has the better mean; if runs stopped short, it is more surely sooner.

    `way` is LOWER or HIGHER: which mean is better.
    """
    sides = {first_name: first, second_name: second}
    if first.num_short + second.num_short:
        if way == HIGHER:
            pair = pair_of(LOWER, first_name, first.upside_down(), second_name, second.upside_down())
            return _with_factor(pair, sides)
        order = _by_arrival(sides)
        pair, turned = (_where_some_stopped(sides, *names) for names in (order, order[::-1]))
        equal = _equal(sooner_p(*(sides[name] for name in order)), sooner_p(*(sides[name] for name in order[::-1])))
    else:
        means = {name: float(numpy.mean(side.numbers)) for name, side in sides.items()}
        order = sorted(sides, key=lambda name: means[name], reverse=way == HIGHER)
        pair, turned = (_by_means(sides, names[0], names[1]) for names in (order, order[::-1]))
        equal = _equal(*means.values())
    return replace(pair, turned=turned) if equal else pair


def _with_factor(pair: PairTest, sides: dict[str, Observations]) -> PairTest:
    """The pair with its factor, where higher numbers are better and runs of the worse side have none."""
    better = sides[pair.better]
    worse = next(side for name, side in sides.items() if name != pair.better)
    means = [float(numpy.mean(side)) if side else 0.0 for side in (better.numbers, worse.bounds(better))]
    factor = means[0] / means[1] if min(means) > 0 and not better.num_short else 0.0
    turned = None if pair.turned is None else _with_factor(pair.turned, sides)
    return replace(pair, factor=math.inf if factor < 1 - NEAR else max(1.0, factor), turned=turned)


def untested(pair: PairTest) -> PairTest:
    """The pair without p-values: a search looked at the runs, so their number was not fixed."""
    turned = None if pair.turned is None else untested(pair.turned)
    return replace(without_shares(pair), p=None, turned=turned)


def without_shares(pair: PairTest) -> PairTest:
    """The pair without the shares that reached a target."""
    turned = None if pair.turned is None else without_shares(pair.turned)
    return replace(pair, often="", counts=None, ways=(), often_p=None, turned=turned)


def _equal(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return True
    return math.isclose(first, second, rel_tol=NEAR, abs_tol=NEAR * NEAR)


def _by_means(sides: dict[str, Observations], better: str, worse: str) -> PairTest:
    first, second = sides[better], sides[worse]
    means = sorted(float(numpy.mean(side.numbers)) for side in (first, second))
    factor = means[1] / means[0] if means[0] > 0 else math.inf
    if min(len(first), len(second)) < 2:
        return PairTest(better, factor, None)
    return PairTest(better, factor, difference_p(first, second), paired=first.in_pairs(second))


def difference_p(first: Observations, second: Observations) -> float | None:
    """The two-sided p-value of equal means; None if a side has one run."""
    if min(len(first), len(second)) < 2:
        return None
    return min(1.0, 2 * min(_p_of_means(first, second), _p_of_means(second, first)))


def _p_of_means(low: Observations, high: Observations) -> float:
    test = p_below_in_pairs if low.in_pairs(high) else p_below
    return test(low.numbers, high.numbers, (low.interval, high.interval))


def _by_arrival(sides: dict[str, Observations]) -> list[str]:
    """The two names, the sooner first: by p-values, else by the share that reached the target, else by won pairs."""
    (name, first), (other, second) = sides.items()
    tails = sooner_p(first, second), sooner_p(second, first)
    if not _equal(*tails):
        assert tails[0] is not None
        assert tails[1] is not None
        return [name, other] if tails[0] < tails[1] else [other, name]
    ranks = [
        (len(side.numbers) / len(side), int(won(side, rest).sum())) for side, rest in ((first, second), (second, first))
    ]
    return [name, other] if ranks[0] >= ranks[1] else [other, name]


def _where_some_stopped(sides: dict[str, Observations], better: str, worse: str) -> PairTest:
    sooner, later = sides[better], sides[worse]
    tail = sooner_p(sooner, later)
    factor, mean = math.inf, float(numpy.mean(sooner.numbers)) if sooner.numbers else 0.0
    if not sooner.num_short and mean > 0:
        least = float(numpy.mean(later.bounds(sooner))) / mean
        factor = math.inf if least < 1 - NEAR else max(1.0, least)
    p = None if tail is None else min(1.0, 2 * tail)
    return _with_shares(PairTest(better, factor, p), better, sooner, worse, later)


def sooner_p(sooner: Observations, later: Observations) -> float | None:
    """The one-sided p-value; small means `sooner` is sooner. Runs without the target only count against their side."""
    if min(len(sooner), len(later)) < 2:
        return None
    if sooner.higher and sooner.num_short + later.num_short:
        return sooner_p(later.upside_down(), sooner.upside_down())
    if not sooner.num_short + later.num_short:
        return _p_of_means(sooner, later)
    if later.never == len(later):
        return p_by_ranks(sooner, later)
    at_risk = later.stopped_behind(max(sooner.numbers, default=0.0))
    if len(at_risk) < 2:
        return 1.0
    if sooner.num_short:
        return p_by_ranks(sooner, at_risk)
    bounds = at_risk.bounds(sooner)
    tail = p_below_bounds(sooner.numbers, bounds, (sooner.interval, at_risk.interval))
    return min(1.0, max(3 * tail, 0.5 ** (len(sooner) + len(at_risk))))


def _with_shares(pair: PairTest, name: str, first: Observations, other: str, second: Observations) -> PairTest:
    both = fisher_tables(first, second)
    if min(both[0][1], both[0][3]) < 2:
        return pair
    p_values = [fisher_p(table) for table in both]
    ahead = p_values[0] <= p_values[1]
    ways = tuple(table for table, p in zip(both, p_values, strict=True) if _equal(p, min(p_values)))
    return replace(
        pair, often=name if ahead else other, counts=both[not ahead], ways=ways, often_p=min(1.0, 2 * min(p_values))
    )


def corrected(ranked: Sequence[float], p: float) -> float:
    """Holm: the largest of (number of tests not yet rejected) x p over this and all smaller p-values."""
    return min(1.0, max((len(ranked) - place) * value for place, value in enumerate(ranked) if value <= p))


def fisher_tables(first: Observations, second: Observations) -> tuple[Table, Table]:
    """The counts at the earliest time at which a run of either side had spent its budget; beginning with each side.

    Runs that were stopped before that time, or that missed the target at an unknown time, are not counted.
    """
    by = min((when for side in (first, second) for when in side.missed if when > 0), default=math.inf)
    (arrived, n), (other_arrived, m) = ((_arrived(side, by), _known(side, by)) for side in (first, second))
    return (arrived, n, other_arrived, m, by), (other_arrived, m, arrived, n, by)


def _arrived(side: Observations, by: float) -> int:
    return sum(number <= by for number in side.numbers)


def _known(side: Observations, by: float) -> int:
    spent = sum(when > 0 for when in side.missed)
    return len(side.numbers) + spent + side.never + sum(when >= by for when in side.stopped)


def fisher_p(counts: Table) -> float:
    """The one-sided p-value: the first setting reaches the target so often or more, by chance, given the total."""
    reached, n, other, m, _ = counts
    total = reached + other
    ways = sum(math.comb(n, first) * math.comb(m, total - first) for first in range(reached, min(total, n) + 1))
    return ways / math.comb(n + m, total)
