"""The axes and rules of a search, and its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conf.schema import ConfigError

Scalar = str | int | float | bool
Key = tuple[tuple[str, Scalar], ...]  # a hashable setting
EXPLORE, DECIDE = "explore", "decide"
GPUS = "gpus"
DIGITS = 3  # of a proposed number; more make no difference
MOST_CHECKED = 50  # choices of an axis that are all checked before a search, in a tenth of a second each
GRID_LEVELS = 5  # values of an interval in the grid that a search is compared with


@dataclass(frozen=True)
class Axis:
    """A searched key: its `choices`, or its interval from `low` to `high`. Raises ConfigError."""

    key: str
    choices: tuple[Scalar, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if self.choices:
            if len(set(self.choices)) < len(self.choices):
                raise ConfigError(f"{self.key}: a value is given twice. Next: give each value once")
            return
        if self.low is None or self.high is None:
            raise ConfigError(f"{self.key}: the axis has no values. Next: give a list (1,2,4) or interval(low,high)")
        if not self.low < self.high:
            raise ConfigError(
                f"{self.key}=interval({self.low:g},{self.high:g}): its ends are not in order. Next: give the lower end"
                " first"
            )
        if self.log and self.low <= 0:
            raise ConfigError(
                f"{self.key}=interval({self.low:g},{self.high:g}): its ends must be above 0 on a logarithmic scale"
            )

    @property
    def to_check(self) -> tuple[Scalar, ...]:
        """The values to check before a search: the axis's choices, or the ends of an interval or of many numbers."""
        if len(self.choices) > MOST_CHECKED and all(isinstance(choice, int | float) for choice in self.choices):
            return min(self.choices), max(self.choices)
        if self.choices:
            return self.choices
        assert self.low is not None
        assert self.high is not None
        return (int(self.low), int(self.high)) if self.integer else (self.low, self.high)

    @property
    def num_levels(self) -> int:
        """The number of values that a grid would try."""
        if self.choices:
            return len(self.choices)
        assert self.low is not None
        assert self.high is not None
        return min(GRID_LEVELS, int(self.high - self.low) + 1) if self.integer else GRID_LEVELS

    @property
    def discrete(self) -> bool:
        return bool(self.choices)

    @property
    def numeric(self) -> bool:
        """Whether the choices are numbers, so that neighbours are similar."""
        return all(isinstance(choice, int | float) and not isinstance(choice, bool) for choice in self.choices)

    @property
    def ordered(self) -> list[Scalar]:
        """The choices, sorted if they are numbers."""
        return sorted(self.choices, key=float) if self.numeric else list(self.choices)

    def share(self, value: float) -> float:
        """The place of a value on the interval, from 0 to 1."""
        assert self.low is not None
        assert self.high is not None
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def at(self, share: float) -> Scalar:
        """The value at this share of the axis, from 0 to 1."""
        if self.choices:
            return self.choices[min(int(share * len(self.choices)), len(self.choices) - 1)]
        assert self.low is not None
        assert self.high is not None
        ends = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = ends[0] + share * (ends[1] - ends[0])
        value = min(max(math.exp(value) if self.log else value, self.low), self.high)
        return round(value) if self.integer else self.rounded(value)

    def holds(self, value: object) -> bool:
        """Whether a value lies on the axis."""
        if self.choices:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low is not None and self.high is not None and self.low <= float(str(value)) <= self.high

    def rounded(self, value: float) -> float:
        """The value rounded to DIGITS digits, within the interval."""
        assert self.low is not None
        assert self.high is not None
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Second:
    """A run by the second objective, in its unit; the fields are as in SearchTrial."""

    cap: float | None = None
    value: float | None = None
    censored_at: float | None = None
    interval: float = 0.0


@dataclass(frozen=True)
class SearchTrial:
    """A run of a search. `value`, `cap` and `censored_at` are in the objective's unit (seconds, USD or joules).

    - `state`: running, reached, stopped (at its cap), missed (spent its own budget without the target) or failed.
    - `censored_at`: the objective at which a run was stopped or missed; its true value is beyond.
    - `interval`: the evaluation interval before the value.
    - `cost`: its part of the search's budget, its start included.
    - `alone`: the cost with the machine to itself, if different.
    - `metric`: the best value of the target's metric, for a search in which every run missed.
    - `second`: the same run by the second objective, if there are two.
    - `refused`: no run was made, since the setting cannot be run; it counts as failed.
    """

    setting: Mapping[str, Scalar]
    seed: int
    phase: str  # explore | decide
    block: int | None = None
    cap: float | None = None
    state: str = "running"
    value: float | None = None
    censored_at: float | None = None
    interval: float = 0.0
    cost: float = 0.0
    alone: float | None = None
    metric: float | None = None
    second: Second | None = None
    refused: bool = False

    @property
    def cost_alone(self) -> float:
        return self.cost if self.alone is None else self.alone

    @cached_property
    def key(self) -> Key:
        return key_of(self.setting)


@dataclass(frozen=True)
class Rules:
    """The rules of a search.

    - `group`: the axis for whose values the best setting is decided separately.
    - `looks`: the numbers of blocks after which deciding compares.
    - `alpha`: the share of wrong decisions over all looks, and over both objectives if `num_objectives` is two.
    - `explore`: False decides among `finalists` only.
    - `starts`: settings to explore first; one without the group's key is tried for each group.
    - `earlier`: the runs of an earlier search over the same axes, which order exploring and may end it.
    - `earlier_seed`: the highest seed of the earlier search, which may have had other axes.
    - `higher`: whether a higher `metric` is better.
    - `at_once`: the largest number of exploring runs at a time.
    - `num_gpus`: the GPUs that runs at a time share, `gpus_each` per run or as its setting says; 0: not shared.
    - `run_cost`: a run's part of the budget, if known in advance.
    - `apart`: each run has its own nodes, so the runs of a block run together.
    """

    axes: tuple[Axis, ...]
    group: str = GPUS
    budget: float = math.inf
    seed: int = 0
    at_once: int = 1
    num_gpus: int = 0
    gpus_each: int = 0
    apart: bool = False
    run_cost: float | None = None
    max_finalists: int = 4
    looks: tuple[int, ...] = (3, 5, 8)
    alpha: float = 0.05
    num_objectives: int = 1
    explore_seed: int = 1
    explore: bool = True
    finalists: tuple[Mapping[str, Scalar], ...] = ()
    starts: tuple[Mapping[str, Scalar], ...] = ()
    earlier: tuple[SearchTrial, ...] = ()
    earlier_seed: int = 0
    higher: bool = True

    @cached_property
    def grouping(self) -> Axis | None:
        """The axis of the groups; None if it is not searched, so that all settings are one group."""
        return next((axis for axis in self.axes if axis.key == self.group and axis.discrete), None)

    @cached_property
    def groups(self) -> tuple[Scalar | None, ...]:
        if self.grouping:
            return self.grouping.choices
        values = dict.fromkeys(setting.get(self.group) for setting in self.finalists)
        return tuple(values) or (None,)

    @cached_property
    def inner_axes(self) -> tuple[Axis, ...]:
        """The axes within a group."""
        return tuple(axis for axis in self.axes if axis is not self.grouping)

    @cached_property
    def levels(self) -> dict[str, dict[Scalar, int]]:
        """For each numeric axis, the rank of each value, with the earlier search's values included."""
        values = {axis.key: {*axis.choices, *(trial.setting[axis.key] for trial in self.earlier)} for axis in self.axes}
        return {
            axis.key: {value: place for place, value in enumerate(sorted(values[axis.key], key=float))}
            for axis in self.axes
            if axis.choices and axis.numeric
        }

    def group_of(self, setting: Mapping[str, Scalar]) -> Scalar | None:
        return setting.get(self.group) if len(self.groups) > 1 or self.grouping else self.groups[0]

    def gpus_of(self, setting: Mapping[str, Scalar]) -> int:
        """The run's part of the shared GPUs; a run on the CPU takes the place of one."""
        return max(1, int(setting.get(GPUS, self.gpus_each))) if self.num_gpus else 0

    @cached_property
    def num_inner(self) -> int | None:
        """The number of settings in a group; None if an axis is an interval."""
        return (
            math.prod(len(axis.choices) for axis in self.inner_axes)
            if all(axis.discrete for axis in self.inner_axes)
            else None
        )

    @property
    def grid_size(self) -> int:
        return math.prod(axis.num_levels for axis in self.axes)


def key_of(setting: Mapping[str, Scalar]) -> Key:
    return tuple(sorted(setting.items()))


def of_phase(trials: Sequence[SearchTrial], phase: str) -> list[SearchTrial]:
    return [trial for trial in trials if trial.phase == phase]
