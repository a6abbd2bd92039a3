"""The settings of a search that are left after its looks, from its deciding runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy

from conf.metric import LOWER
from tracking.analysis.audit.arithmetic import BlockTable, Observations, factor_bounds, sooner_p
from tracking.analysis.audit.searches.trials import Trial

LOOKS, ERROR = (3, 5, 8), 0.05  # the blocks after which a search looks, and how often it may err
Runs = Mapping[str, Mapping[int, Trial]]  # by setting and block


@dataclass(frozen=True)
class Look:
    """The deciding runs of the first `num` blocks, by setting."""

    runs: Mapping[str, Sequence[Trial]]
    num: int

    @classmethod
    def of(cls, runs: Runs, names: Sequence[str], num: int) -> Look:
        return cls({name: [trial for at, trial in sorted(runs[name].items()) if at < num] for name in names}, num)

    def sample(self, name: str) -> Observations:
        """A setting's numbers. A run without one counts as its lower bound, else as never reaching the target."""
        runs = self.runs[name]
        numbers = [trial.number for trial in runs if trial.number is not None]
        bounds = [trial.bound for trial in runs if trial.number is None and trial.bound]
        whole = tuple(map(str, range(self.num))) if len(numbers) == self.num else ()
        never, gap = len(runs) - len(numbers) - len(bounds), max((trial.gap for trial in runs), default=0.0)
        return Observations(numbers, bounds, never=never, interval=gap, seeds=whole)

    @cached_property
    def table(self) -> BlockTable:
        """The settings that have a number in each block."""
        samples = {name: self.sample(name) for name in self.runs}
        whole = {name: sample for name, sample in samples.items() if sample.seeds}
        rows = {name: numpy.log(sample.numbers) for name, sample in whole.items()}
        return BlockTable(rows, {name: sample.interval / fmean(sample.numbers) for name, sample in whole.items()})

    def order(self, name: str) -> tuple[int, float]:
        """A sort key: fewer misses first, then the lower mean."""
        sample = self.sample(name)
        return sample.num_short, fmean(sample.numbers) if sample.numbers else math.inf

    def p(self, sooner: str, later: str) -> float:
        if {sooner, later} <= self.table.rows.keys():
            return self.table.p(sooner, later)
        tail = sooner_p(self.sample(sooner), self.sample(later))
        return 1.0 if tail is None else tail

    def at_most(self, first: str, second: str, level: float) -> float:
        """The upper bound of the first one's mean over the second's."""
        if {first, second} <= self.table.rows.keys():
            return self.table.at_most(first, second, level)
        own, other = self.sample(first), self.sample(second)
        bounds = factor_bounds(LOWER, other, own, level) if own.numbers else None
        return bounds[1] if bounds else math.inf

    def left(self, candidates: Sequence[str], level: float) -> list[str]:
        """The candidates that no other one significantly beats; at least the best one, if there is any."""
        each = level / max(1, len(candidates) - 1)
        beaten = {
            name
            for name in candidates
            for other in candidates
            if self.order(other) < self.order(name) and self.p(other, name) < each
        }
        return [name for name in candidates if name not in beaten] or sorted(candidates, key=self.order)[:1]


@dataclass(frozen=True)
class Standing:
    """The state after the looks: the candidates, the settings that keep running, and the last look with its level."""

    candidates: list[str]
    members: list[str]
    num_looks: int
    last: Look
    level: float

    @property
    def ended(self) -> bool:
        return self.num_looks > 0 and (len(self.candidates) < 2 or self.num_looks == len(LOOKS))

    @property
    def named(self) -> str | None:
        best = min(self.candidates, key=self.last.order, default=None)
        return best if best and self.num_looks and self.last.sample(best).numbers else None


def standing_of(runs: Runs, finalists: Sequence[str], groups: Mapping[str, object], error: float) -> Standing:
    """The state after the looks at the finalists. `groups` has each setting's group, whose best keeps running."""
    candidates, members, num_looks, level = [*finalists], [*finalists], 0, error
    last = Look.of(runs, [*runs], LOOKS[-1])
    for before, num in zip((0, *LOOKS), LOOKS, strict=False):
        if not members or not all({*range(num)} <= runs.get(name, {}).keys() for name in members):
            break
        last, num_looks, level = Look.of(runs, [*runs], num), num_looks + 1, error * (num - before) / LOOKS[-1]
        candidates = Look.of(runs, members, num).left(candidates, level)
        kept = {*candidates, *best_of_groups(last, members, groups).values()}
        members = [name for name in members if name in kept]
        if len(candidates) < 2:
            break
    return Standing(candidates, members, num_looks, last, level)


def refused_of(standing: Standing, runs: Runs, compared: Sequence[str]) -> list[str]:
    """The members that lack runs of the next look, and that the answer neither names nor compares.

    A search goes on without a setting that can no longer be run, and no run folder holds a run that was refused.
    """
    if standing.ended:
        return []
    needed = {*range(LOOKS[standing.num_looks])}
    return [name for name in standing.members if name not in compared and not needed <= runs[name].keys()]


def best_of_groups(look: Look, members: Sequence[str], groups: Mapping[str, object]) -> dict[object, str]:
    """The best of each group among the settings with a run that reached the target."""
    best: dict[object, str] = {}
    for name in sorted(members, key=look.order):
        if look.sample(name).numbers:
            best.setdefault(groups[name], name)
    return best
