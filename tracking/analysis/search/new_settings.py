"""The next new setting of a group: the starting settings, then a few that fill the space, then Optuna's proposals.

Its study is rebuilt from the trials each time, so that no state has to be kept. Only this module imports Optuna, on
first use.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from conf.schema import ConfigError
from tracking.analysis.search.earlier import agreed_shape, next_promising
from tracking.analysis.search.explored import expectations
from tracking.analysis.search.group import Group
from tracking.analysis.search.neighbours import all_settings, distance, neighbours
from tracking.analysis.search.trials import Axis, Scalar, key_of

if TYPE_CHECKING:
    import optuna

TRIES = 4  # proposals requested from Optuna; the first new one is taken
Point = Mapping[str, Scalar]


def new_setting(group: Group) -> dict[str, Scalar] | None:
    """An untried setting of the group; None if all were tried."""
    rules, keys = group.rules, group.keys
    first = [setting for setting in _starts(group) if key_of(setting) not in keys]
    if first:
        return first[0]
    if rules.num_inner is not None and len(keys) >= rules.num_inner:
        return None
    if shape := agreed_shape(rules, group.trials):
        return next_promising(group, shape)
    if len(keys) < group.num_fill or not any(trial.state != "running" for trial in group.own):
        filling = [setting for setting in _filling(group) if key_of(setting) not in keys]
        if filling:
            return filling[0]
    return next((setting for setting in _proposed(group) if key_of(setting) not in keys), None)


def _starts(group: Group) -> Iterator[dict[str, Scalar]]:
    """The starting settings on the axes that belong to this group, or to a group that is not searched."""
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
    """Untried neighbours of the front, then Optuna's proposals, then all other settings, nearest first."""
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
    """The untried neighbours of the best settings, along one axis before those along two."""
    axes, tried = group.rules.inner_axes, [dict(key) for key in group.keys]
    around = [
        setting
        for key in group.front
        for setting in neighbours(axes, dict(key))
        if all(distance(axes, setting, other) > 0.5 for other in tried)
    ]
    return [group.whole(setting) for setting in around]


def proposals(
    axes: Sequence[Axis], points: Sequence[tuple[Point, Sequence[float]]], seed: int, num: int
) -> Iterator[dict[str, Scalar]]:
    """Up to `num` proposals, from points with their value by each objective; lower is better.

    Raises ConfigError without Optuna.
    """
    num_objectives = len(points[0][1]) if points else 1
    with _quiet() as optuna:
        distributions = {axis.key: _distribution(axis) for axis in axes}
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=0)
        study = optuna.create_study(sampler=sampler, directions=["minimize"] * num_objectives)
        for point, values in points:
            params = {axis.key: _to_optuna(axis, point[axis.key]) for axis in axes}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, values=values))
    for _ in range(num):
        with _quiet():
            params = study.ask(distributions).params
        yield {axis.key: _value(axis, params[axis.key]) for axis in axes}


@contextmanager
def _quiet() -> Iterator[Any]:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            f"a search needs Optuna, which cannot be imported ({error}). Next: pip install 'optuna>=5,<6' (the extra"
            " search)"
        ) from error
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # multivariate
            yield optuna
    finally:
        optuna.logging.set_verbosity(level)


def _places(axis: Axis) -> list[Scalar]:
    """Numeric choices in order, so that Optuna knows which are neighbours; [] for other choices."""
    return axis.ordered if axis.numeric and len(axis.choices) > 1 else []


def _distribution(axis: Axis) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.choices:
        places = _places(axis)
        return IntDistribution(0, len(places) - 1) if places else CategoricalDistribution(axis.choices)
    assert axis.low is not None
    assert axis.high is not None
    if axis.integer:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _to_optuna(axis: Axis, value: Scalar) -> Scalar:
    """A value for Optuna: the place of an ordered choice, else the value."""
    places = _places(axis)
    return places.index(value) if places else value


def _value(axis: Axis, param: Any) -> Scalar:
    """The axis's value for a parameter of Optuna's."""
    places = _places(axis)
    value: Scalar = places[param] if places else param
    return axis.rounded(param) if isinstance(param, float) and not axis.choices else value
