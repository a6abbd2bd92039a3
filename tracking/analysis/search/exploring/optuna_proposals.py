"""Proposals by Optuna, whose study is rebuilt from the trials each time, so that no state has to be kept.

This is the only module that imports Optuna, on first use.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from conf.schema import ConfigError
from tracking.analysis.search.known.trials import Axis, Scalar

if TYPE_CHECKING:
    import optuna

Point = Mapping[str, Scalar]


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
