"""Runs put into workloads and settings, and which of them a figure is of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracking.analysis.compare.censoring import UNTIL_CENSORED, censored_at, interval_of
from tracking.analysis.results import TASK, End, Run
from tracking.analysis.statistics import Share, Times, finite, share
from tracking.base import quantities

DEVICES = ("gpus", "nodes", "cpu_processes")
OUT_OF_MEMORY = "oom"  # the kind of a failure
MISSED = "target missed"  # why a run is excluded that trained to its end
SHORT = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
STACK_AXES = {"stack", "stack.name", "env.stack_id", "env.image"} | {
    f"env.{key}" for key in ("driver", "cuda", "cudnn", "nccl", "torch", "python")
}


@dataclass(frozen=True)
class Setting:
    """Runs that have the same values of the axes: `runs` are averaged, of `total` with those that are not.

    Of those with a target, `missed` spent their own budget without reaching it, `diverged` never will, and `stopped`
    were stopped from outside before. `missed` ones may be among `runs`, too.
    """

    labels: Mapping[str, str]
    runs: Sequence[Run]
    total: int
    missed: Sequence[Run] = ()
    diverged: Sequence[Run] = ()
    stopped: Sequence[Run] = ()
    directions: Mapping[str, str] = field(default_factory=dict)  # which way metrics are better, of the whole workload
    num_out_of_memory: int = 0

    @classmethod
    def of(cls, labels: Mapping[str, str], every: Sequence[Run], averaged: Sequence[Run]) -> Setting:
        """The setting of these runs, of which some are averaged."""
        missed, diverged, stopped = (
            [run for run in every if run.end is end and is_censored(run)]
            for end in (End.MISSED, End.DIVERGED, End.STOPPED)
        )
        full = sum(run.failure == OUT_OF_MEMORY for run in every)
        return cls(labels, averaged, len(every), missed, diverged, stopped, num_out_of_memory=full)

    @property
    def name(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.labels.items()) or "all"

    @property
    def num_missed(self) -> int:
        """The runs that count as not having reached their target."""
        return len(self.missed) + len(self.diverged)

    @property
    def trained(self) -> list[Run]:
        """The runs that trained to their end, whether or not they reached their target."""
        averaged = {run.id for run in self.runs}
        return [*self.runs, *(run for run in self.missed if run.id not in averaged)]

    def runs_of(self, key: str) -> list[Run]:
        """The runs that a figure of this metric is of, in every table and comparison.

        A metric to accuracy is of the runs that reached their target and of those that did not; any other is of all
        runs that trained to their end and have it.
        """
        there = [run for run in self.trained if key in run.metrics]
        return [*there, *self.missed, *self.diverged, *self.stopped] if key in UNTIL_CENSORED else there

    def values(self, key: str) -> list[float]:
        """In order of their seeds, as words."""
        return [run.metrics[key] for run in sorted(self.trained, key=seed_of) if key in run.metrics]

    def seeds(self, key: str) -> tuple[str, ...]:
        """The seeds of the runs that a figure is of, in order, where they are to be paired by them; else empty.

        Every run was made for that, has a finite value, and a seed that no other has.
        """
        runs = sorted(self.runs_of(key), key=seed_of)
        seeds = tuple(map(seed_of, runs))
        good = all(run.paired and seed_of(run) and math.isfinite(run.metrics.get(key, math.nan)) for run in runs)
        return seeds if good and len({*seeds}) == len(seeds) else ()

    def measured(self, key: str) -> Times:
        """The values of a metric; of one to accuracy, also what is known of the runs that did not reach their target.

        By when a run had not reached it is 0 where nothing says it. A stopped run then says nothing, and neither does a
        missed one where no run of the setting has the metric.
        """
        reached = finite(self.values(key))
        if key not in UNTIL_CENSORED:
            return Times(reached, interval=self.interval(key), seeds=self.seeds(key))
        missed, stopped = (
            [censored_at(key, run.metrics) or 0.0 for run in runs] for runs in (self.missed, self.stopped)
        )
        if not reached and not any(missed):
            missed = []
        stopped = list(filter(None, stopped))
        return Times(reached, missed, stopped, len(self.diverged), self.interval(key), self.seeds(key))

    def better(self, key: str) -> str | None:
        """Which way a metric is better (conf.metric); None where neither way is, or nothing says it."""
        return quantities.better(key, self.directions)

    def interval(self, key: str) -> float:
        """The mean distance of the evaluations on which values of a metric can fall; 0 of continuous ones."""
        known = [interval_of(key, run.metrics) for run in self.trained if key in run.metrics]
        there = finite([interval for interval in known if interval is not None])
        return sum(there) / len(there) if there else 0.0

    def usual_n(self, key: str) -> int:
        """How many runs a figure of this metric is of where it does not say it."""
        return self.reached.n + len(self.stopped) if self.reached and key in UNTIL_CENSORED else len(self.runs)

    @property
    def reached(self) -> Share | None:
        """How many of its runs reached their target, of those that did or missed it; None where there are none."""
        num_reached = len(self.values(quantities.TIME_TO_ACCURACY_SEC))
        return share(num_reached, num_reached + self.num_missed)

    @property
    def devices(self) -> float | None:
        """The measured world size, where all its runs had the same."""
        sizes = set(self.values(quantities.WORLD_SIZE))
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True)
class Task:
    """One model on one dataset to one target, its settings in order, and the runs that are averaged nowhere."""

    title: str
    settings: Sequence[Setting]
    excluded: Sequence[tuple[Run, str, str]] = field(default_factory=list)  # run, setting, why

    @property
    def runs(self) -> list[Run]:
        return [run for setting in self.settings for run in setting.runs]


def why_excluded(run: Run, with_missed: bool = False) -> str | None:
    """Why a run is in no average; None where it counts. `with_missed`: a missed target alone does not exclude it."""
    if run.uncounted:
        return f"not counted: {run.uncounted}"
    words = {End.RUNNING: "not ended", End.DIVERGED: f"diverged: {run.failure}", End.STOPPED: f"stopped: {run.failure}",
             End.FAILED: f"failed: {run.failure}"}  # fmt: skip
    if run.end in words:
        return words[run.end]
    if run.resumed:
        return "interrupted and resumed"
    return MISSED if run.end is End.MISSED and not with_missed else None


def is_censored(run: Run) -> bool:
    """Whether it says of itself that it had not reached its target: missed, diverged or stopped.

    A run that was resumed has no time of one go by when it had not.
    """
    if run.uncounted or not run.has_target:
        return False
    return run.end is End.DIVERGED or (run.end in (End.MISSED, End.STOPPED) and not run.resumed)


def group(
    runs: Sequence[Run], axes: Sequence[str], values: Callable[[Run, str], str], with_missed: bool = False
) -> list[Task]:
    """The workloads in order of their names, each with its settings in order of the axes' values."""
    workloads: dict[str, dict[tuple[str, ...], list[Run]]] = {}
    for run in runs:
        labels = tuple(values(run, axis) for axis in axes)
        workloads.setdefault(title(run), {}).setdefault(labels, []).append(run)
    return [_task(name, axes, workloads[name], with_missed) for name in sorted(workloads)]


def _task(name: str, axes: Sequence[str], members: Mapping[tuple[str, ...], list[Run]], with_missed: bool) -> Task:
    settings, excluded = [], []
    places = {labels: [in_order(value, is_stack(axis)) for axis, value in zip(axes, labels, strict=True)]
              for labels in members}  # fmt: skip
    directions = agreed([run for runs in members.values() for run in runs])
    for labels in sorted(members, key=places.__getitem__):
        runs = members[labels]
        good = [run for run in runs if why_excluded(run, with_missed) is None]
        setting = Setting.of(dict(zip(axes, labels, strict=True)), runs, good)
        settings.append(replace(setting, directions=directions))
        reasons = [(run, why_excluded(run, with_missed)) for run in runs]
        excluded += [(run, settings[-1].name, reason) for run, reason in reasons if reason]
    return Task(name, settings, excluded)


def agreed(runs: Iterable[Run]) -> dict[str, str]:
    """By metric, which way is better, where no run contradicts another. A run may say nothing."""
    said: dict[str, set[str]] = {}
    for run in runs:
        for name, better in run.directions.items():
            said.setdefault(name, set()).add(better)
    return {name: next(iter(ways)) for name, ways in said.items() if len(ways) == 1}


def seed_of(run: Run) -> str:
    return run.params.get("seed", "")


def title(run: Run) -> str:
    model, dataset, metric, value = (run.params.get(key) for key in TASK)
    targets = zip((metric or "").split(","), (value or "").split(","), strict=False)
    target = " and ".join(f"{name} {number}" for name, number in targets if name)
    return f"{model or '?'} on {dataset or '?'}" + (f" to {target}" if target else ", no target")


def in_order(value: str, version: bool = False) -> list[tuple[int, float, str]]:
    """Sorts numbers by value and before words; of a version its parts one after the other: 535.9 before 535.104."""
    try:
        return [_in_order(part) for part in re.split(r"[.+_ -]", value)] if version else [(0, float(value), "")]
    except ValueError:
        return [(1, 0.0, value)]


def _in_order(part: str) -> tuple[int, float, str]:
    return (0, float(part), "") if part.isdecimal() else (1, 0.0, part)


def is_stack(axis: str) -> bool:
    """Whether an axis is of the software that a run is computed with."""
    return SHORT.get(axis, axis) in STACK_AXES
