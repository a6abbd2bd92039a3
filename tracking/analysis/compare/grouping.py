"""Group runs into workloads and settings, and choose the runs that a figure averages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from conf.metric import HIGHER
from tracking.analysis.compare.censoring import UNTIL_CENSORED, censored_at, interval_of, is_lost
from tracking.analysis.results import TASK, End, Run
from tracking.analysis.statistics import Share, Times, finite, share
from tracking.base import quantities

DEVICES = ("gpus", "nodes", "cpu_processes")
OUT_OF_MEMORY = "oom"  # a kind of failure
MISSED = "target missed"  # why a finished run is excluded
SHORT = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
STACK_AXES = {"stack", "stack.name", "env.stack_id", "env.image"} | {
    f"env.{key}" for key in ("driver", "cuda", "cudnn", "nccl", "torch", "framework", "python")
}


@dataclass(frozen=True)
class Setting:
    """Runs with the same values on all axes. `runs` are averaged; `total` counts all of them.

    Runs that have a target and did not reach it: `missed` spent their own budget, `diverged` never reach it, `stopped`
    were stopped from outside. `missed` runs may be among `runs` too.
    """

    labels: Mapping[str, str]
    runs: Sequence[Run]
    total: int
    missed: Sequence[Run] = ()
    diverged: Sequence[Run] = ()
    stopped: Sequence[Run] = ()
    directions: Mapping[str, str] = field(default_factory=dict)  # of metrics, from all runs of the workload
    num_out_of_memory: int = 0

    @classmethod
    def of(cls, labels: Mapping[str, str], every: Sequence[Run], averaged: Sequence[Run]) -> Setting:
        """The setting with the runs `every`; figures average those in `averaged`."""
        missed, diverged, stopped = (
            [run for run in every if run.end is end and is_censored(run)]
            for end in (End.MISSED, End.DIVERGED, End.STOPPED)
        )
        full = sum(run.failure == OUT_OF_MEMORY for run in every)
        return cls(labels, averaged, len(every), missed, diverged, stopped, agreed(every), full)

    @property
    def name(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.labels.items()) or "all"

    @property
    def num_missed(self) -> int:
        """The number of runs that count as misses of their target."""
        return len(self.missed) + len(self.diverged)

    @property
    def trained(self) -> list[Run]:
        """The runs that trained to their end, with or without their target."""
        averaged = {run.id for run in self.runs}
        return [*self.runs, *(run for run in self.missed if run.id not in averaged)]

    @property
    def searched(self) -> bool:
        """Whether a search decided with any of its runs: tests for a fixed number of runs do not apply then."""
        return any(run.searched for run in (*self.trained, *self.diverged, *self.stopped))

    def runs_of(self, key: str) -> list[Run]:
        """The runs that a figure of this metric covers, in every table and comparison.

        Any metric covers the runs that trained to their end and have it, also those in which it became NaN. A metric
        to accuracy also covers the runs that did not reach their target.
        """
        with_metric = [run for run in self.trained if math.isfinite(run.metrics.get(key, math.nan))]
        if key in UNTIL_CENSORED:
            return [*with_metric, *self.missed, *self.diverged, *self.stopped]
        return [*with_metric, *self._lost(key)]

    def _lost(self, key: str) -> list[Run]:
        """The runs in which a metric with a known direction became NaN, if it is known in another run."""
        compares = self.better(key) and finite(self.values(key))
        return [run for run in self.trained if is_lost(key, run)] if compares else []

    def values(self, key: str) -> list[float]:
        """The metric's values, in order of the seeds as text."""
        return [run.metrics[key] for run in sorted(self.trained, key=seed_of) if key in run.metrics]

    def seeds(self, key: str) -> tuple[str, ...]:
        """The seeds of the runs that a figure covers, in order, if the runs are to be paired by seed; else empty.

        Pairing needs that every run was made for it, has a finite value, and has a seed of its own.
        """
        runs = sorted(self.runs_of(key), key=seed_of)
        seeds = tuple(map(seed_of, runs))
        paired = all(run.paired and seed_of(run) and math.isfinite(run.metrics.get(key, math.nan)) for run in runs)
        return seeds if paired and len({*seeds}) == len(seeds) else ()

    def measured(self, key: str) -> Times:
        """The values of a metric; for a metric to accuracy, also the censored times of runs without the target.

        A run whose value became NaN or infinite counts as worse than all others, if the setting has a value.

        A missed run without a known censored time counts as 0; a stopped run without one is left out. Missed runs are
        left out too if no run of the setting has a value, and no missed run a censored time.
        """
        reached = finite(self.values(key))
        if key not in UNTIL_CENSORED:
            lost = len(self._lost(key))
            return Times(reached, (), (), lost, self.interval(key), self.seeds(key), self.better(key) == HIGHER)
        missed, stopped = (
            [censored_at(key, run.metrics) or 0.0 for run in runs] for runs in (self.missed, self.stopped)
        )
        if not reached and not any(missed):
            missed = []
        stopped = list(filter(None, stopped))
        return Times(reached, missed, stopped, len(self.diverged), self.interval(key), self.seeds(key))

    def better(self, key: str) -> str | None:
        """Which way a metric is better (conf.metric); None if neither way is, or if it is not known."""
        return quantities.better(key, self.directions)

    def interval(self, key: str) -> float:
        """The mean spacing of a metric's possible values, which fall on evaluations; 0 for continuous values."""
        intervals = [interval_of(key, run.metrics) for run in self.trained if key in run.metrics]
        known = finite([interval for interval in intervals if interval is not None])
        return sum(known) / len(known) if known else 0.0

    def usual_n(self, key: str) -> int:
        """The number of runs that a figure of this metric covers by default; a table states n where it differs."""
        return self.reached.n + len(self.stopped) if self.reached and key in UNTIL_CENSORED else len(self.runs)

    @property
    def reached(self) -> Share | None:
        """The share of runs that reached their target, among those that reached or missed it; None without any."""
        num_reached = len(self.values(quantities.TIME_TO_ACCURACY_SEC))
        return share(num_reached, num_reached + self.num_missed)

    @property
    def devices(self) -> float | None:
        """The measured world size, if it is the same in all runs; else None."""
        sizes = set(self.values(quantities.WORLD_SIZE))
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True)
class Task:
    """One model on one dataset to one target: its settings in order, and the runs that no figure averages."""

    title: str
    settings: Sequence[Setting]
    excluded: Sequence[tuple[Run, str, str]] = field(default_factory=list)  # run, setting, why

    @property
    def runs(self) -> list[Run]:
        return [run for setting in self.settings for run in setting.runs]

    @property
    def sweeps(self) -> set[str | None]:
        """The sweeps of all its runs; None for a run outside of sweeps."""
        return {run.sweep for run in (*self.runs, *(run for run, _, _ in self.excluded))}


def why_excluded(run: Run, with_missed: bool = False) -> str | None:
    """Why averages leave a run out; None if they count it. `with_missed`: count runs that only missed the target."""
    if run.uncounted:
        return f"not counted: {run.uncounted}"
    words = {End.RUNNING: "not ended", End.DIVERGED: f"diverged: {run.failure}", End.STOPPED: f"stopped: {run.failure}",
             End.FAILED: f"failed: {run.failure}"}  # fmt: skip
    if run.end in words:
        return words[run.end]
    if is_interrupted(run):
        return "interrupted and resumed"
    return MISSED if run.end is End.MISSED and not with_missed else None


def is_interrupted(run: Run) -> bool:
    """Whether no figure covers a run since it was resumed: its times and costs hold or leave out an interruption."""
    return run.resumed and run.end not in (End.RUNNING, End.DIVERGED, End.FAILED)


def is_censored(run: Run) -> bool:
    """Whether a run with a target missed it, diverged or was stopped.

    A resumed run is not censored, since it has no uninterrupted time; one that diverged is.
    """
    if run.uncounted or not run.has_target:
        return False
    return run.end in (End.MISSED, End.DIVERGED, End.STOPPED) and not is_interrupted(run)


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
        averaged = [run for run in runs if why_excluded(run, with_missed) is None]
        setting = Setting.of(dict(zip(axes, labels, strict=True)), runs, averaged)
        settings.append(replace(setting, directions=directions))
        reasons = [(run, why_excluded(run, with_missed)) for run in runs]
        excluded += [(run, settings[-1].name, reason) for run, reason in reasons if reason]
    return Task(name, settings, excluded)


def agreed(runs: Iterable[Run]) -> dict[str, str]:
    """Which way each metric is better, by name. Metrics on which runs disagree are left out."""
    declared: dict[str, set[str]] = {}
    for run in runs:
        for name, better in run.directions.items():
            declared.setdefault(name, set()).add(better)
    return {name: next(iter(ways)) for name, ways in declared.items() if len(ways) == 1}


def apart_from_devices(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels without numbers of devices. `gpus=0` stays, since the CPU is another kind of device."""
    return {axis: value for axis, value in labels.items() if axis not in DEVICES or (axis, value) == ("gpus", "0")}


def seed_of(run: Run) -> str:
    return run.params.get("seed", "")


def title(run: Run) -> str:
    model, dataset, metric, value = (run.params.get(key) for key in TASK)
    targets = zip((metric or "").split(","), (value or "").split(","), strict=False)
    target = " and ".join(f"{name} {number}" for name, number in targets if name)
    return f"{model or '?'} on {dataset or '?'}" + (f" to {target}" if target else ", no target")


def in_order(value: str, version: bool = False) -> list[tuple[int, float, str]]:
    """A sort key: numbers by value, before words; versions part by part, so 535.9 comes before 535.104."""
    try:
        return [_in_order(part) for part in re.split(r"[.+_ -]", value)] if version else [(0, float(value), "")]
    except ValueError:
        return [(1, 0.0, value)]


def _in_order(part: str) -> tuple[int, float, str]:
    return (0, float(part), "") if part.isdecimal() else (1, 0.0, part)


def is_stack(axis: str) -> bool:
    """Whether an axis belongs to the software stack."""
    return SHORT.get(axis, axis) in STACK_AXES
