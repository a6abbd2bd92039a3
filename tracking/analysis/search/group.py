"""A group of a search: the settings with one value of the group axis, whose best setting is sought separately."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tracking.analysis.search.explored import Explored, explored, incumbent
from tracking.analysis.search.objectives import front, views
from tracking.analysis.search.trials import Key, Rules, Scalar, SearchTrial

FILL = 3  # settings that fill a group's space, plus one for each axis


@dataclass(frozen=True)
class Group:
    """A group's part of a search. `trials` are all exploring runs, `own` the group's."""

    rules: Rules
    value: Scalar | None
    trials: Sequence[SearchTrial]

    @cached_property
    def own(self) -> list[SearchTrial]:
        return [trial for trial in self.trials if self.rules.group_of(trial.setting) == self.value]

    @cached_property
    def keys(self) -> dict[Key, None]:
        """The settings of the group in order of their first start."""
        return dict.fromkeys(trial.key for trial in self.own)

    @cached_property
    def settings(self) -> list[Explored]:
        """The group's settings by the first objective."""
        return explored(self.rules, self.trials, self.value)

    @cached_property
    def views(self) -> list[Group]:
        """The group seen by each objective; their `settings` have the same order."""
        if self.rules.num_objectives == 1:
            return [self]
        return [Group(rules, self.value, trials) for rules, trials in views(self.rules, self.trials)]

    @cached_property
    def best(self) -> list[Explored | None]:
        """The best setting by each objective."""
        return [incumbent(view.settings) for view in self.views]

    @cached_property
    def front(self) -> list[Key]:
        """The settings known to reach the target that no other one beats in all objectives."""
        known = [
            each for each in zip(*(view.settings for view in self.views), strict=True) if all(s.known for s in each)
        ]
        return [each[0].key for each in front(known, lambda each: tuple(setting.expected for setting in each))]

    def whole(self, inner: dict[str, Scalar]) -> dict[str, Scalar]:
        """A setting of the group from its inner axes' values, with keys in the order of the axes."""
        grouping = self.rules.grouping
        group = {grouping.key: self.value} if grouping and self.value is not None else {}
        setting = {**inner, **group}
        return {axis.key: setting[axis.key] for axis in self.rules.axes}

    @property
    def num_fill(self) -> int:
        return FILL + len(self.rules.inner_axes)

    @property
    def num_first(self) -> int:
        """The number of settings to explore before deciding."""
        return min(self.num_fill, self.rules.num_inner or self.num_fill)

    def seed(self, what: str) -> int:
        return zlib.crc32(f"{self.rules.seed} {self.value} {what}".encode())
