"""The state of exploring: expected time of each setting, the best of each group, noise of repeats, and a run's cap.

Times are modelled as log-normal. A censored run gets the mean of the distribution beyond its censored time. Then the
distribution is fitted again with these means, until it converges (Schmee and Hahn 1979, Technometrics 21, 417-432;
Hutter, Hoos and Leyton-Brown 2011 do so for a search, Bayesian Optimization With Censored Response Data).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tracking.analysis.search.trials import EXPLORE, Key, Rules, Scalar, SearchTrial, of_phase

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

# The relative standard deviation of repeats before any are known; it weighs as much as one repeat.
USUAL_NOISE = 0.1
FAILED = 2.0  # a failed run counts as this many times the worst value
MANY_SPREADS = 3.0
USUAL_SPREAD = 0.5  # of the logarithms of settings' times, if too few runs reached the target to measure it
LEAST_SPREAD, MOST_SPREAD = 0.1, 1.0
ROUNDS = 20


@dataclass(frozen=True)
class Explored:
    """A setting's exploring runs. `expected` is their mean, with expected values for stopped and missed runs."""

    trials: tuple[SearchTrial, ...]
    expected: float

    @property
    def key(self) -> Key:
        return self.trials[0].key

    @property
    def reached(self) -> list[float]:
        return [trial.value for trial in self.trials if trial.value is not None]

    @property
    def num_missed(self) -> int:
        """The number of runs that missed the target or failed, without those stopped at their cap."""
        return sum(trial.state not in ("reached", "stopped") for trial in self.trials)

    @property
    def usable(self) -> bool:
        """Whether every run reached the target or was stopped at its cap."""
        return not self.num_missed

    @property
    def known(self) -> bool:
        """Whether a run reached the target, and no run missed it or failed."""
        return self.usable and bool(self.reached)


def explored(rules: Rules, trials: Sequence[SearchTrial], group: Scalar | None) -> list[Explored]:
    """The settings of a group with ended exploring runs, in order of their first start."""
    of_group = [trial for trial in of_phase(trials, EXPLORE) if rules.group_of(trial.setting) == group]
    values = expectations(of_group)
    settings: dict[Key, list[tuple[SearchTrial, float]]] = {}
    for trial, value in zip(of_group, values, strict=True):
        if trial.state != "running":
            settings.setdefault(trial.key, []).append((trial, value))
    return [
        Explored(tuple(trial for trial, _ in runs), fmean(value for _, value in runs)) for runs in settings.values()
    ]


def expectations(trials: Sequence[SearchTrial]) -> list[float]:
    """The value of each run, or its expected value if it was stopped, missed or is running.

    All are NaN if nothing is known yet.
    """
    reached = tuple(trial.value for trial in trials if trial.value is not None)
    beyond = [trial for trial in trials if trial.value is None and trial.censored_at and trial.state != "running"]
    expected, usual = expected_beyond(reached, tuple(trial.censored_at or 0.0 for trial in beyond))
    expected_by_run = dict(zip(map(id, beyond), expected, strict=True))
    worst = FAILED * max([*reached, *expected], default=math.nan)
    values = []
    for trial in trials:
        if trial.value is not None:
            values.append(trial.value)
        else:
            values.append(expected_by_run.get(id(trial), usual if trial.state == "running" else worst))
    return values


def incumbent(settings: Sequence[Explored]) -> Explored | None:
    """The setting with the lowest expected value among those that reached the target, or None."""
    return min((setting for setting in settings if setting.known), key=lambda setting: setting.expected, default=None)


def noise(trials: Sequence[SearchTrial]) -> float:
    """The standard deviation of the logarithms of repeats, pooled over the settings that have repeats."""
    settings: dict[Key, list[float]] = {}
    for trial in of_phase(trials, EXPLORE):
        if trial.value is not None:
            settings.setdefault(trial.key, []).append(math.log(trial.value))
    squares, freedom = USUAL_NOISE**2, 1
    for logs in settings.values():
        middle = fmean(logs)
        squares += sum((value - middle) ** 2 for value in logs)
        freedom += len(logs) - 1
    return math.sqrt(squares / freedom)


def resolution(setting: Explored) -> float:
    """The setting's evaluation interval as a share of its time."""
    return max((trial.interval / trial.value for trial in setting.trials if trial.value), default=0.0)


def cap_of(rules: Rules, trials: Sequence[SearchTrial], setting: Mapping[str, Scalar] | None = None) -> float | None:
    """The objective at which a run that starts now is stopped; None if no best is known.

    It is the best mean so far, plus the larger of three pooled standard deviations and an evaluation interval. With a
    `setting`, the best is its group's, since each group's best is part of the answer. Otherwise a slow group would be
    stopped before its best setting is known.
    """
    groups = rules.groups if setting is None else (rules.group_of(setting),)
    leading = [incumbent(explored(rules, trials, group)) for group in groups]
    best = min((leader for leader in leading if leader), key=lambda leader: leader.expected, default=None)
    if best is None:
        return None
    return best.expected * (1 + max(MANY_SPREADS * noise(trials), resolution(best)))


def mean_beyond(bounds: Array, location: float, spread: float) -> Array:
    """E[X | X > bound] of a log-normal X, whose logarithm has this mean and standard deviation, for each bound."""
    import numpy as np  # here, since every launcher imports this module, but few search
    from scipy import special

    scores = (np.log(bounds) - location) / spread
    shifts = special.log_ndtr(spread - scores) - special.log_ndtr(-scores)
    means: Array = np.maximum(bounds, np.exp(location + spread**2 / 2 + shifts))
    return means


@lru_cache(maxsize=1024)  # a proposal computes the same runs many times
def expected_beyond(reached: tuple[float, ...], bounds: tuple[float, ...]) -> tuple[tuple[float, ...], float]:
    """The expected value of each run beyond its bound, and the expected value of a run without information.

    If no run reached the target, the bounds are used as times.
    """
    if not (reached or bounds):
        return (), math.nan
    import numpy as np

    logs, beyond = np.log(np.array(reached or bounds)), np.array(bounds)
    location, spread = _fit(logs)
    expected = mean_beyond(beyond, location, spread)
    for _ in range(ROUNDS if bounds and reached else 0):
        before = location
        location, spread = _fit(np.concatenate([logs, np.log(expected)]))
        expected = mean_beyond(beyond, location, spread)
        if math.isclose(before, location, abs_tol=1e-3):
            break
    return tuple(expected.tolist()), math.exp(location + spread**2 / 2)


def _fit(logs: Array) -> tuple[float, float]:
    spread = float(logs.std(ddof=1)) if len(logs) > 2 else USUAL_SPREAD
    return float(logs.mean()), min(max(spread, LEAST_SPREAD), MOST_SPREAD)
