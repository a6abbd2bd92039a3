"""The best and the worst software stack of a workload, how far they are apart, and what would decide where runs do not.

Stacks are compared where all else that a report compares by is the same: on one model of GPU, on as many of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tracking.compare import estimates
from tracking.compare.estimates import ALPHA, Comparison, Estimate, estimate
from tracking.compare.grouping import Setting, Task, is_stack
from tracking.compare.metric_direction import higher_is_better
from tracking.statistics import Choice, ratio_bounds

COST = "cost/to_accuracy_usd"


@dataclass(frozen=True)
class Extremes:
    """The best stack among settings whose other axes are `among`, and the one that is furthest behind it.

    The pair's p-value is corrected for the choice among `num_stacks` that have two runs at least, and not for other
    GPUs: which stack is best is a question of its own on each. `bounds` are those of the factor; None where a side has
    one run, and of whole numbers. `saved_usd` is by how much the worse one's mean cost to accuracy is above the better
    one's, None without prices. `num_runs` a side would tell a pair that is not told apart (`estimates.repeats`), which
    takes `num_more` than there are.
    """

    among: Mapping[str, str]
    pair: Comparison
    num_stacks: int
    bounds: tuple[float, float] | None
    saved_usd: Estimate | None
    num_runs: int | None
    num_more: int


def extremes(task: Task, metric: str, pairs: Sequence[Comparison]) -> list[Extremes]:
    """The best and the worst of stacks where nothing else differs, for each value of the other axes, in their order.

    `pairs` are all of the workload, by which the best stack leads as the best of all settings does (`estimates.best`):
    it has the best mean where every run got to its target. Where a mean has no factor to another, since it is not
    above 0, there are none.
    """
    standing = estimates.standing(pairs)
    order = {setting.name: (*standing.get(setting.name, (0, 0)), -place) for place, setting in enumerate(task.settings)}
    families: dict[tuple[tuple[str, str], ...], list[Comparison]] = {}
    for setting in task.settings:
        families.setdefault(tuple(other_axes(setting).items()), [])
    for pair in pairs:
        both = [tuple(other_axes(setting).items()) for setting in (pair.better, pair.worse)]
        if both[0] == both[1]:
            families[both[0]].append(pair)
    return [
        _widest(dict(among), members, metric, order)
        for among, members in families.items()
        if members and all(map(has_factor, members))
    ]


def has_factor(pair: Comparison) -> bool:
    return math.isfinite(pair.factor)


def _widest(
    among: Mapping[str, str], members: Sequence[Comparison], metric: str, order: Mapping[str, tuple[int, int, int]]
) -> Extremes:
    choice = _choice(members, metric)
    stacks = dict.fromkeys(setting.name for pair in members for setting in (pair.better, pair.worse))
    best = max(stacks, key=lambda name: order[name])
    ahead = [pair for pair in members if pair.better.name == best]
    pair = max(ahead or members, key=lambda pair: pair.factor)
    freedom = min(setting.times(metric).n for setting in (pair.better, pair.worse)) - 1
    pair = replace(pair, adjusted=None if pair.p is None else choice.corrected(pair.p, freedom))
    costs = [estimate(setting.times(COST)) for setting in (pair.worse, pair.better)]
    saved = difference(*costs) if costs[0] and costs[1] else None  # type: ignore[arg-type]
    num_runs = estimates.repeats(pair, metric, choice.num_tests, lambda freedom: choice.level(freedom, ALPHA))
    num_more = sum(max(0, (num_runs or 0) - setting.times(metric).n) for setting in (pair.better, pair.worse))
    limits = bounds(pair, metric, choice.level(freedom, ALPHA)) if pair.p is not None else None
    return Extremes(among, pair, choice.num_settings, limits, saved, num_runs, num_more)


def _choice(members: Sequence[Comparison], metric: str) -> Choice:
    tested = [pair for pair in members if pair.p is not None]
    names = {setting.name for pair in tested for setting in (pair.better, pair.worse)}
    sides = [setting.times(metric) for pair in tested for setting in (pair.better, pair.worse)]
    return Choice(len(names), len(tested), shared=any(side.num_short or side.interval for side in sides))


def other_axes(setting: Setting) -> dict[str, str]:
    """What a setting is beside its software stack."""
    return {axis: value for axis, value in setting.labels.items() if not is_stack(axis)}


def bounds(pair: Comparison, metric: str, level: float) -> tuple[float, float] | None:
    """The interval of the factor between two settings, each side at `level`.

    It is the interval of a ratio of means that inverts the test which compares them (`time_to_event.ratio_bounds`;
    Fieller 1954, Journal of the Royal Statistical Society B 16, 175-185). 0 or infinity where there is no bound. None
    where a mean is not above 0, and of whole numbers, whose test is not of the ratio.
    """
    sides = (pair.better, pair.worse) if higher_is_better(metric) else (pair.worse, pair.better)
    top, bottom = (setting.times(metric) for setting in sides)
    if top.interval or bottom.interval:
        return None
    latest = max(top.latest, bottom.latest)
    if min(fmean(times.at_least(latest)) for times in (top, bottom)) <= 0:
        return None
    return ratio_bounds(top, bottom, 1 - level)


def difference(more: Estimate, less: Estimate) -> Estimate | None:
    """A difference of two means of independent runs, whose variances add; None where both are only known to be at least
    so large."""
    if more.bound and less.bound:
        return None
    error = None if more.error is None or less.error is None else math.hypot(more.error, less.error)
    bound = more.bound or {"≥": "≤"}.get(less.bound, "")
    return Estimate(more.mean - less.mean, error, min(more.n, less.n), bound=bound)
