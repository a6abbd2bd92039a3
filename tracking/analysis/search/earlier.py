"""Exploring with the runs of an earlier search: which setting promises a gain, and when none does.

The earlier search's measurements are in no figure of the answer. They order the settings to explore, end exploring, and
choose the finalists among the explored settings. While this search's runs contradict them, exploring ignores them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from tracking.analysis.search.explored import Explored, expectations, noise, resolution
from tracking.analysis.search.group import Group
from tracking.analysis.search.neighbours import all_settings, distance, neighbours
from tracking.analysis.search.shape import UNSEEN, Place, Point, Shape, shape_of
from tracking.analysis.search.trials import EXPLORE, Axis, Key, Rules, Scalar, SearchTrial, of_phase

LEVELS = 5.0  # steps in an interval
APART = math.sqrt(0.5)  # places two text choices one step apart
LEAST_GAIN, LEAST_OF_NOISE = 0.007, 0.12  # the least expected gain worth a run: a share of the time, and of the noise
LEAST_SETTINGS = 3  # explored settings of a group before exploring may end
MOST_DOUBT = 0.6
MOST_SPREADS = 0.6  # of a finalist's mean above the best one
MOST_CANDIDATES = 200
HALF = 0.5  # steps; settings that are nearer to a tried one differ by less than the noise
Setting = Mapping[str, Scalar]


def agreed_shape(rules: Rules, trials: Sequence[SearchTrial]) -> Shape | None:
    """The shape of the earlier search and these exploring runs.

    None without an earlier search, if none of its runs has a time or a bound, or if these runs disagree with it.
    """
    earlier_points = _earlier_points(rules)
    if not earlier_points:
        return None
    exploring = of_phase(trials, EXPLORE)
    own = [
        point
        for value in rules.groups
        for point in _points(rules, [trial for trial in exploring if rules.group_of(trial.setting) == value], exploring)
    ]
    shape = shape_of(earlier_points, tuple(own))
    return shape if shape.doubt < MOST_DOUBT else None


def next_promising(group: Group, shape: Shape) -> dict[str, Scalar] | None:
    """The group's most promising setting; None if all were tried."""
    gain, setting = _most_promising(group, shape)
    steps = unknown_steps(group) if gain < _least_gain(group) else []
    return steps[0] if steps else setting


def promises_nothing(group: Group, shape: Shape) -> bool:
    """Whether enough of the group's settings are known, and no other one has a worthwhile expected gain."""
    enough = len(group.keys) >= LEAST_SETTINGS and not unknown_steps(group)
    return enough and _most_promising(group, shape)[0] < _least_gain(group)


def _least_gain(group: Group) -> float:
    best = group.best[0]
    return max(LEAST_GAIN, LEAST_OF_NOISE * max(noise(group.trials), resolution(best) / 2 if best else 0.0))


def unknown_steps(group: Group) -> list[dict[str, Scalar]]:
    """The untried settings one step along one axis from the leading group's best setting; [] for other groups."""
    rules, axes = group.rules, group.rules.inner_axes
    best = [each.best[0] for value in rules.groups if (each := Group(rules, value, group.trials))]
    own = group.best[0]
    if own is None or own.expected > min(each.expected for each in best if each):
        return []
    middle, tried = dict(own.key), [dict(key) for key in group.keys]
    steps = [setting for setting in neighbours(axes, middle) if _num_differing(axes, setting, middle) == 1]
    return [group.whole(each) for each in steps if all(distance(axes, each, other) > HALF for other in tried)]


def ranked_by(rules: Rules, shape: Shape, settings: Sequence[Explored]) -> dict[Key, tuple[float, bool]]:
    """For each explored setting, the logarithm of its expected time, and whether it may be the best one."""
    means, spreads = shape.likeliest.beside_best([_place(rules, dict(setting.key)) for setting in settings])
    may_be_best = means - means.min() <= MOST_SPREADS * spreads
    rows = zip(settings, means.tolist(), may_be_best.tolist(), strict=True)
    return {setting.key: (mean, bool(close)) for setting, mean, close in rows}


def _most_promising(group: Group, shape: Shape) -> tuple[float, dict[str, Scalar] | None]:
    """The largest expected gain of an untried setting, and that setting; None if all were tried."""
    axes, tried = group.rules.inner_axes, [dict(key) for key in group.keys]
    candidates = [
        setting for setting in _candidates(group) if all(distance(axes, setting, other) > HALF for other in tried)
    ]
    if not candidates:
        return 0.0, None
    places = [_place(group.rules, setting) for setting in candidates]
    known = [_place(group.rules, dict(setting.key)) for setting in group.settings if setting.known]
    if not known:
        return math.inf, candidates[int(shape.means(places).argmin())]
    gains = shape.expected_gains(places, known)
    return float(gains.max()), candidates[int(gains.argmax())]


def _candidates(group: Group) -> list[dict[str, Scalar]]:
    """All settings of the group, or if there are too many, the ones around the best and random ones."""
    axes = group.rules.inner_axes
    if group.rules.num_inner is not None and group.rules.num_inner <= MOST_CANDIDATES:
        return [group.whole(setting) for setting in all_settings(axes)]
    draw = random.Random(group.seed("candidates"))
    around = [setting for key in group.front for setting in neighbours(axes, dict(key))]
    others = [{axis.key: axis.at(draw.random()) for axis in axes} for _ in range(MOST_CANDIDATES)]
    return [group.whole(setting) for setting in [*around, *others]]


def _earlier_points(rules: Rules) -> tuple[Point, ...]:
    groups: dict[Scalar | None, list[SearchTrial]] = {}
    for trial in rules.earlier:
        groups.setdefault(trial.setting.get(rules.group), []).append(trial)
    return tuple(point for trials in groups.values() for point in _points(rules, trials, rules.earlier))


def _points(rules: Rules, current: Sequence[SearchTrial], trials: Sequence[SearchTrial]) -> list[Point]:
    """The settings of a group with ended runs, as points. `trials` are all runs that show the noise."""
    runs: dict[Key, list[tuple[SearchTrial, float]]] = {}
    for trial, value in zip(current, expectations(current), strict=True):
        if trial.state != "running" and value > 0:
            runs.setdefault(trial.key, []).append((trial, value))
    spread, points = noise(trials), []
    for key, each in runs.items():
        setting = Explored(tuple(trial for trial, _ in each), fmean(value for _, value in each))
        error = max(spread, resolution(setting) / 2) / math.sqrt(len(each)) if setting.reached else UNSEEN
        bound = max((math.log(trial.censored_at) for trial, _ in each if trial.censored_at), default=-math.inf)
        log_time = fmean(math.log(value) for _, value in each)
        points.append(Point(_place(rules, dict(key)), log_time, error**2, bool(setting.reached), bound))
    return points


def _place(rules: Rules, setting: Setting) -> Place:
    """The place of a setting, in steps along each axis."""
    return tuple(step for axis in rules.axes for step in _steps(rules, axis, setting[axis.key]))


def _steps(rules: Rules, axis: Axis, value: Scalar) -> list[float]:
    if not axis.choices:
        return [LEVELS * axis.share(float(value))]
    if not axis.numeric:
        return [APART * (value == choice) for choice in axis.choices]
    return [float(rules.levels[axis.key][value])]


def _num_differing(axes: Sequence[Axis], first: Setting, second: Setting) -> int:
    return sum(first[axis.key] != second[axis.key] for axis in axes)
