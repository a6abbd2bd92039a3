"""The best of several settings or software stacks: the candidates, and the leader's lead over the others.

The test allows for the choice: multiple comparisons with the best (statistics.best_of). A setting with one run can
neither be shown to be the best nor be ruled out. Stacks are compared where all other axes are equal: on the same GPUs,
and the same number of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conf.metric import LOWER
from tracking.analysis.compare.comparisons import (
    ALPHA,
    Comparison,
    compared,
    factor_bounds,
    runs_that_would_tell,
    with_values,
)
from tracking.analysis.compare.estimates import OPPOSITE, Estimate, estimate
from tracking.analysis.compare.grouping import Setting, Task, is_stack
from tracking.analysis.statistics import Needed, candidates, corrected, one_sided_level
from tracking.base import quantities

COST = quantities.COST_TO_ACCURACY_USD


@dataclass(frozen=True)
class Best:
    """The settings that may be the best, `candidates`, in order, and the one that leads, `leader`.

    - `num_tested`: the number of settings with two runs or more.
    - `next`: the leader's pair with the runner-up; None for a single setting.
    - `undecided`: the leader's closest pair with another candidate; None without another one. It may differ from
      `next`: a closer setting whose runs spread less may be told apart already.
    - `p`: the largest corrected p-value of the leader against another setting; None if a pair cannot be tested.
    - `bounds`: of the leader's factor over `next`; None if one of them has one run, if a search decided with their
      runs, or if a mean is not above 0.
    """

    settings: Sequence[Setting]
    leader: Setting
    candidates: Sequence[Setting]
    num_tested: int
    next: Comparison | None
    undecided: Comparison | None
    p: float | None
    bounds: tuple[float, float] | None
    paired: bool = False  # whether the leader's runs are paired with those of each other setting

    @property
    def tied(self) -> list[Setting]:
        """The candidates without the leader."""
        return [setting for setting in self.candidates if setting is not self.leader]

    @property
    def searched(self) -> list[Setting]:
        """The candidates with runs that a search decided with."""
        return [setting for setting in self.candidates if setting.searched]

    @property
    def level(self) -> float:
        """The one-sided level of each comparison with the best."""
        return one_sided_level(self.num_tested)


def best_of(settings: Sequence[Setting], pairs: Sequence[Comparison], key: str) -> Best | None:
    """The best of the settings with values of this metric; None without any. `pairs` are all their comparisons."""
    with_value = with_values(settings, key)
    if not with_value:
        return None
    num_tested = sum(setting.measured(key).n > 1 for setting in with_value)
    significant = [
        (pair.better.name, pair.worse.name)
        for pair in pairs
        if pair.p is not None and corrected(pair.p, num_tested) < ALPHA
    ]
    names = candidates([setting.name for setting in with_value], significant)
    may_be_best = [setting for setting in with_value if setting.name in names] or with_value
    num_led = Counter(pair.better.name for pair in pairs)
    leader = max(may_be_best, key=lambda setting: num_led[setting.name])
    pairs_of_leader = [pair for pair in pairs if leader.name in (pair.better.name, pair.worse.name)]
    p_values = [pair.p if pair.better.name == leader.name else 1.0 for pair in pairs_of_leader]
    tested = [p for p in p_values if p is not None]
    following = _closest(pairs_of_leader, leader, with_value)
    return Best(
        with_value, leader, may_be_best, num_tested,
        following,
        _closest(pairs_of_leader, leader, may_be_best),
        corrected(max(tested), num_tested) if tested and len(tested) == len(pairs_of_leader) else None,
        _bounds(leader, following, key, one_sided_level(num_tested)),
        bool(pairs_of_leader) and all(pair.paired for pair in pairs_of_leader),
    )  # fmt: skip


def _closest(pairs: Sequence[Comparison], leader: Setting, among: Sequence[Setting]) -> Comparison | None:
    """The leader's closest pair with one of the settings `among`; None without any."""
    names = {setting.name for setting in among}
    listed = [pair for pair in pairs if pair.other_than(leader).name in names]
    return min(listed, key=lambda pair: _distance(pair, leader), default=None)


def _distance(pair: Comparison, leader: Setting) -> tuple[bool, float, float]:
    """A sort key for the leader's pairs: first those that it loses, then those with its smallest leads."""
    return pair.better.name == leader.name, pair.factor, -(pair.p or 0.0)


def _bounds(leader: Setting, pair: Comparison | None, key: str, level: float) -> tuple[float, float] | None:
    if pair is None or pair.searched:
        return None
    return factor_bounds(leader, pair.other_than(leader), key, level)


def best(task: Task, key: str) -> Setting | None:
    """The setting that leads by this metric, significantly or not."""
    with_value = with_values(task.settings, key)
    pairs = [
        compared(first, second, key) for place, first in enumerate(with_value) for second in with_value[place + 1 :]
    ]
    leading = best_of(with_value, pairs, key)
    return leading.leader if leading else None


def ranked(settings: Sequence[Setting], key: str, leader: Setting) -> list[Setting]:
    """The leader, then the others by their means of this metric; those without a value come last."""

    def place(setting: Setting) -> tuple[bool, float]:
        mean = estimate(setting.measured(key))
        sign = 1 if setting.better(key) == LOWER else -1
        return setting.name != leader.name, math.inf if mean is None else sign * mean.mean

    return sorted(settings, key=place)


@dataclass(frozen=True)
class BestStack:
    """The best of two or more stacks, in settings that agree on all other axes; `among` holds those axes' values.

    Each kind of GPU has its own best stack. `saved_usd` is the runner-up's mean cost to accuracy minus the leader's;
    None without prices. `needed` is the number of runs that would tell the leader from the other setting of
    `best.undecided`.
    """

    among: Mapping[str, str]
    best: Best
    saved_usd: Estimate | None
    needed: Needed | None

    @property
    def next(self) -> Comparison:
        assert self.best.next is not None
        return self.best.next

    @property
    def runner_up(self) -> Setting:
        return self.next.other_than(self.best.leader)


def best_stacks(task: Task, metric: str, pairs: Sequence[Comparison]) -> list[BestStack]:
    """The best stack for each value of the other axes, in order; `pairs` are all comparisons of the workload."""
    families: dict[tuple[tuple[str, str], ...], list[Setting]] = {}
    for setting in task.settings:
        families.setdefault(tuple(other_axes(setting).items()), []).append(setting)
    leading = []
    for among, settings in families.items():
        names = {setting.name for setting in settings}
        members = [pair for pair in pairs if {pair.better.name, pair.worse.name} <= names]
        best = best_of(settings, members, metric)
        if best and best.next:
            leading.append(_described(dict(among), best, metric))
    return leading


def _described(among: Mapping[str, str], best: Best, metric: str) -> BestStack:
    needed = runs_that_would_tell(best.undecided, metric, best.level) if best.undecided else None
    stack = BestStack(among, best, None, needed)
    costs = [estimate(setting.measured(COST)) for setting in (stack.runner_up, best.leader)]
    saved = difference(*costs) if costs[0] and costs[1] else None  # type: ignore[arg-type]
    return BestStack(among, best, saved, needed)


def other_axes(setting: Setting) -> dict[str, str]:
    """The setting's values on the axes that are not part of the software stack."""
    return {axis: value for axis, value in setting.labels.items() if not is_stack(axis)}


def difference(more: Estimate, less: Estimate) -> Estimate | None:
    """The difference of two means of independent runs, whose variances add; None if both are only bounds."""
    if more.bound and less.bound:
        return None
    error = None if more.error is None or less.error is None else math.hypot(more.error, less.error)
    bound = more.bound or OPPOSITE[less.bound]
    return Estimate(more.mean - less.mean, error, min(more.n, less.n), bound=bound)
