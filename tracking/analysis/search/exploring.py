"""What exploring runs next, and when it has learned enough.

Each group is searched for itself, with as many settings as the others: the ratio of two groups' bests is fair only if
both were sought alike. In a group come the settings to start with, a few that fill the space, and then proposals. The
best one is repeated now and then, which tells the noise and takes back what was luck. With two objectives the best one
of each is repeated, and proposals are made around the front.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tracking.analysis.search.caps import cap_of
from tracking.analysis.search.explored import Explored, expectations, explored, incumbent, noise, resolution
from tracking.analysis.search.neighbours import all_settings, distance, neighbours
from tracking.analysis.search.objectives import front, views
from tracking.analysis.search.optuna_proposals import proposals
from tracking.analysis.search.trials import EXPLORE, Axis, Key, Rules, Scalar, SearchTrial, Second, key_of, of_phase

FILL = 3  # settings of a group that fill the space, and one more for each axis
TRIES = 4  # proposals asked of Optuna; the first new one is taken
MOST_REPEATS = 3  # runs of the best setting of a group
BETWEEN_REPEATS = 3  # new settings of a group, at least
PATIENCE, PATIENCE_AN_AXIS = 6, 2  # proposals without a gain


@dataclass(frozen=True)
class Group:
    """A group's part of a search. `trials` are all exploring runs; `own` are the group's."""

    rules: Rules
    value: Scalar | None
    trials: Sequence[SearchTrial]

    @cached_property
    def own(self) -> list[SearchTrial]:
        return [trial for trial in self.trials if self.rules.group_of(trial.setting) == self.value]

    @cached_property
    def keys(self) -> dict[Key, None]:
        """The settings that were started, in that order."""
        return dict.fromkeys(trial.key for trial in self.own)

    @cached_property
    def settings(self) -> list[Explored]:
        """The settings by the first objective."""
        return explored(self.rules, self.trials, self.value)

    @cached_property
    def views(self) -> list[Group]:
        """The group by each objective; their `settings` are in the same order."""
        if self.rules.num_objectives == 1:
            return [self]
        return [Group(rules, self.value, trials) for rules, trials in views(self.rules, self.trials)]

    @cached_property
    def best(self) -> list[Explored | None]:
        """The best setting by each objective."""
        return [incumbent(view.settings) for view in self.views]

    @cached_property
    def front(self) -> list[Key]:
        """The settings that are known to reach the target and that no other one beats in all objectives."""
        known = [
            each for each in zip(*(view.settings for view in self.views), strict=True) if all(s.known for s in each)
        ]
        return [each[0].key for each in front(known, lambda each: tuple(setting.expected for setting in each))]

    def whole(self, inner: dict[str, Scalar]) -> dict[str, Scalar]:
        """A setting of the group, its keys in the order of the axes."""
        grouping = self.rules.grouping
        group = {grouping.key: self.value} if grouping and self.value is not None else {}
        setting = {**inner, **group}
        return {axis.key: setting[axis.key] for axis in self.rules.axes}

    @property
    def num_fill(self) -> int:
        return FILL + len(self.rules.inner_axes)

    @property
    def num_first(self) -> int:
        """The settings to explore before anything is decided."""
        return min(self.num_fill, self.rules.num_inner or self.num_fill)

    def seed(self, what: str) -> int:
        return zlib.crc32(f"{self.rules.seed} {self.value} {what}".encode())


def next_of(rules: Rules, trials: Sequence[SearchTrial]) -> SearchTrial | None:
    """The exploring run that starts next; None where every group has ended, or has to wait for free GPUs.

    The group with the fewest runs comes first. While it waits for more GPUs than are free, others may get ahead of it
    by as many runs as there are GPUs: then the GPUs become free for it, and it is not left behind.
    """
    exploring = of_phase(trials, EXPLORE)
    groups = [Group(rules, value, exploring) for value in rules.groups]
    waits: Group | None = None
    for group in sorted((group for group in groups if not ended(group)), key=lambda group: len(group.own)):
        if waits and len(group.own) >= len(waits.own) + rules.num_gpus:
            return None
        trial = _next_of_group(group)
        if trial and _has_room(rules, exploring, trial):
            return trial
        waits = waits or (group if trial else None)
    return None


def _next_of_group(group: Group) -> SearchTrial | None:
    repeat = _repeat(group)
    if repeat is not None:  # without a cap, which would make the noise seem smaller
        return SearchTrial(*repeat, EXPLORE)
    setting = _new(group)
    if setting is None:
        return None
    caps = [cap_of(view.rules, view.trials, setting) for view in group.views]
    second = Second(caps[1]) if len(caps) > 1 else None
    return SearchTrial(setting, group.rules.explore_seed, EXPLORE, cap=caps[0], second=second)


def _has_room(rules: Rules, trials: Sequence[SearchTrial], new: SearchTrial) -> bool:
    running = [trial for trial in trials if trial.state == "running"]
    taken = sum(rules.gpus_of(trial.setting) for trial in running)
    return not running or taken + rules.gpus_of(new.setting) <= rules.num_gpus


def filling(rules: Rules, trials: Sequence[SearchTrial]) -> bool:
    """Whether a group has fewer settings than fill its space."""
    exploring = of_phase(trials, EXPLORE)
    groups = [Group(rules, value, exploring) for value in rules.groups]
    return any(len(group.keys) < group.num_first for group in groups)


def ended(group: Group) -> bool:
    """Whether all settings are known, or so many were tried without a gain that is larger than the noise.

    A setting is a gain where no earlier one is as good by each objective.
    """
    keys = list(group.keys)
    if group.rules.num_inner is not None and len(keys) >= group.rules.num_inner:
        return _repeat(group) is None
    patience = max(PATIENCE, PATIENCE_AN_AXIS * len(group.rules.axes))
    gains, since = list[tuple[float, ...]](), 0
    for each in zip(*(view.settings for view in group.views), strict=True):
        reach = [_least_gain(*pair) for pair in zip(group.views, each, strict=True)]
        values = tuple(setting.expected for setting in each)
        beaten = any(
            all(value >= gain * (1 - least) for value, gain, least in zip(values, before, reach, strict=True))
            for before in gains
        )
        gained = each[0].known and not beaten
        since = 0 if gained else since + 1
        gains += [values] if gained else []
    tired = since >= patience + (0 if gains else FILL)
    return tired and _repeat(group) is None and not unknown_neighbours(group)


def _least_gain(group: Group, setting: Explored) -> float:
    return max(noise(group.trials), resolution(setting) / 2)


def _repeat(group: Group) -> tuple[dict[str, Scalar], int] | None:
    """The best setting of the group with its next seed, where it is to be repeated."""
    keys = dict.fromkeys(best.key for best in group.best if best)
    return next((repeat for key in keys if (repeat := _repeat_of(group, key, keys))), None)


def _repeat_of(group: Group, key: Key, bests: Collection[Key]) -> tuple[dict[str, Scalar], int] | None:
    own = group.own
    if any(trial.key == key and trial.state == "running" for trial in own):
        return None
    seeds = {trial.seed for trial in own if trial.key == key}
    seen: set[Key] = set()
    num_new = 0
    for trial in own:  # new settings since the last repeat, but for that of the best one by another objective
        if trial.key not in seen:
            num_new += 1
        elif trial.key == key or trial.key not in bests:
            num_new = 0
        seen.add(trial.key)
    num_settings = group.rules.num_inner
    full = num_settings is not None and len(seen) >= num_settings
    if len(seeds) >= (2 if full else MOST_REPEATS) or num_new < (1 if full else BETWEEN_REPEATS):
        return None
    return group.whole(dict(key)), max(seeds) + 1


def _new(group: Group) -> dict[str, Scalar] | None:
    """A setting of the group that was not tried yet; None when all were."""
    rules, keys = group.rules, group.keys
    first = [setting for setting in _starts(group) if key_of(setting) not in keys]
    if first:
        return first[0]
    if rules.num_inner is not None and len(keys) >= rules.num_inner:
        return None
    if len(keys) < group.num_fill or not any(trial.state != "running" for trial in group.own):
        filling = [setting for setting in _filling(group) if key_of(setting) not in keys]
        if filling:
            return filling[0]
    return next((setting for setting in _proposed(group) if key_of(setting) not in keys), None)


def _starts(group: Group) -> Iterator[dict[str, Scalar]]:
    """The settings to start with that lie on the axes: the group's, and those of a group that is not searched."""
    rules = group.rules
    for start in rules.starts:
        inner = {axis.key: start[axis.key] for axis in rules.inner_axes if _holds(axis, start.get(axis.key))}
        value = start.get(rules.group)
        if len(inner) == len(rules.inner_axes) and (value == group.value or value not in rules.groups):
            yield group.whole(inner)


def _holds(axis: Axis, value: Scalar | None) -> bool:
    if axis.choices or isinstance(value, str | None):
        return value in axis.choices
    assert axis.low is not None
    assert axis.high is not None
    return axis.low <= value <= axis.high


def _filling(group: Group) -> Iterator[dict[str, Scalar]]:
    """A Latin hypercube over the axes of the group (McKay, Beckman and Conover 1979, Technometrics 21, 239-245)."""
    rules = group.rules
    num = group.num_fill
    order = random.Random(group.seed("filling"))
    shares = {axis.key: order.sample(range(num), num) for axis in rules.inner_axes}
    for place in range(num):
        yield group.whole({axis.key: axis.at((shares[axis.key][place] + 0.5) / num) for axis in rules.inner_axes})


def _proposed(group: Group) -> Iterator[dict[str, Scalar]]:
    """Unknown neighbours of the front, Optuna's proposals, and then all that is left, the nearest first."""
    axes = group.rules.inner_axes
    seed = group.seed(str(len(group.trials)))
    yield from unknown_neighbours(group)
    values = zip(*(expectations(view.own) for view in group.views), strict=True)
    points = [(trial.setting, each) for trial, each in zip(group.own, values, strict=True) if not math.isnan(sum(each))]
    for proposal in proposals(axes, points, seed, TRIES):
        yield group.whole(proposal)
    if group.rules.num_inner is not None:
        settings = list(all_settings(axes))
        random.Random(seed).shuffle(settings)
        middle = dict(group.front[0]) if group.front else settings[0]
        yield from map(group.whole, sorted(settings, key=lambda setting: distance(axes, setting, middle)))


def unknown_neighbours(group: Group) -> list[dict[str, Scalar]]:
    """The neighbours of the best settings that were not tried, those along one axis before those along two."""
    axes, tried = group.rules.inner_axes, [dict(key) for key in group.keys]
    around = [
        setting
        for key in group.front
        for setting in neighbours(axes, dict(key))
        if all(distance(axes, setting, other) > 0.5 for other in tried)
    ]
    return [group.whole(setting) for setting in around]
