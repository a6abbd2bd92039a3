"""Runs as reports, diffs and gates read them: the same values from MLflow (mlflow_runs) and from run folders
(folder_runs).

store = MlflowRuns("http://mlflow:5000")          # or FolderRuns([Path("runs")])
runs = store.find(["20261121-080925-vgg-8b31"])   # a sweep, an experiment, a run's id, name or folder
store.history(runs[0], ["eval/accuracy"])         # {"eval/accuracy": [(step, time_ms, value), ...]}
store.text(runs[0], "config.yaml")
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Protocol

from conf import metric
from conf.target import directions_of
from tracking.base import quantities
from tracking.base.installation import LAUNCH, TRACKING
from tracking.record import failures

# What makes runs comparable at all: the same task to the same target.
TASK = ("model", "dataset", "target_metric", "target_value")
UNCOUNTED_TAG = "timetrial.uncounted"  # why no mean counts a run, though it may have gone well
EXPLORING = "exploring"  # why no mean counts a run with which a search explored
PAIRED_TAG = "timetrial.paired"  # "seed": decided before the run to be compared in pairs (sweep.paired)
BETTER_TAG = "timetrial.better"  # which way each metric is better, where that was declared or a target says it
REPEATS = ("seed",)  # a setting is repeated with these
MAX_LISTED = 10  # sweeps that are named where something unknown was asked for
History = dict[str, list[tuple[int, int, float]]]  # by key: (step, time in ms, value), in order of step and time
Progress = Callable[[int], None]  # told how many runs of a selector were read so far


class End(Enum):
    """How a run ended. MISSED and DIVERGED are misses of its target; of one that was STOPPED nobody knows."""

    REACHED = "reached its target"
    MISSED = "spent its budget (max_epochs) without reaching its target"
    TRAINED = "trained to its end, without a target"
    DIVERGED = "its loss became NaN or infinite: it never reaches a target"
    STOPPED = "stopped from outside"
    FAILED = "failed otherwise"
    RUNNING = "has not ended"


@dataclass(frozen=True)
class Run:
    """One run as it stands in MLflow; `metrics` are the newest values. A sweep's parent run is never one of these."""

    id: str
    name: str
    experiment: str
    status: str  # MLflow's: FINISHED | FAILED | KILLED | RUNNING
    start_ms: int
    end_ms: int | None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether it trained to its end, target reached or not."""
        return self.status == "FINISHED"

    @property
    def failure(self) -> str | None:
        """The kind of its failure (oom, nan, signal:9, ...), or None."""
        return self.tags.get("failure") or (None if self.status in ("FINISHED", "RUNNING") else "unknown")

    @property
    def end(self) -> End:
        if self.status == "RUNNING":
            return End.RUNNING
        if self.failure == "nan":
            return End.DIVERGED
        if self.failure:
            return End.STOPPED if self.failure in failures.STOPPED_BY else End.FAILED
        ends = {1.0: End.REACHED, 0.0: End.MISSED}
        return ends.get(self.metrics.get(quantities.TARGET_REACHED, math.nan), End.TRAINED)

    @property
    def has_target(self) -> bool:
        return bool(self.params.get("target_metric"))

    @cached_property
    def directions(self) -> dict[str, str]:
        """By metric, which way is better (conf.metric); runs of older versions say it by their targets alone."""
        names, values = (self.params.get(f"target_{what}", "").split(",") for what in ("metric", "value"))
        of_targets = directions_of({name: value for name, value in zip(names, values, strict=False) if name and value})
        return metric.read(self.tags.get(BETTER_TAG, "")) | of_targets

    @property
    def sweep(self) -> str | None:
        return self.tags.get("sweep")

    @property
    def resumed(self) -> bool:
        """Whether it was interrupted and continued: then it has no time to accuracy."""
        return "resumed" in self.tags

    @property
    def paired(self) -> bool:
        """Whether it was made to be compared with runs of the same seed."""
        return self.tags.get(PAIRED_TAG) == "seed"

    @property
    def uncounted(self) -> str | None:
        """Why it is in no mean by what it was made for: "warm-up" of one that only fills caches; else None."""
        return self.tags.get(UNCOUNTED_TAG)


class Runs(Protocol):
    """Where runs are read from. `source` names it in messages, without credentials."""

    source: str

    def find(self, selectors: Sequence[str], progress: Progress | None = None) -> list[Run]:
        """The runs that the selectors name, each once, by start. Raises ValueError for a selector that names none."""

    def history(self, run: Run, keys: Iterable[str]) -> History:
        """All values of these metrics; a key that the run has not got is left out."""

    def text(self, run: Run, name: str) -> str:
        """A file of the run, such as config.yaml or fingerprint.json. Raises FileNotFoundError where it has none."""


def newest_attempts(runs: Sequence[Run]) -> list[Run]:
    """Without the runs that failed in a sweep and were run again there: a job counts once, as in its sweep.

    One that diverged stays, unless its job diverged again: that a later attempt did not is no reason to forget it.
    """
    newest: dict[tuple[str, str], Run] = {}  # by sweep and configuration
    for run in sorted(runs, key=lambda run: run.start_ms):
        if job := _job(run):
            newest[job] = run

    def stays(run: Run) -> bool:
        last = newest.get(_job(run) or ("", ""), run)
        return (
            not run.failure
            or run.start_ms >= last.start_ms
            or (run.end is End.DIVERGED and last.end is not End.DIVERGED)
        )

    return [run for run in runs if stays(run)]


def _job(run: Run) -> tuple[str, str] | None:
    """Sweep and configuration of the job that a run is an attempt of; None outside of sweeps."""
    return (run.sweep, run.tags["config_hash"]) if run.sweep and "config_hash" in run.tags else None


def need_finished(runs: Sequence[Run], selectors: Sequence[str]) -> None:
    """Raise ValueError where not one of the runs trained to its end."""
    if not any(run.finished for run in runs):
        kinds = Counter(run.failure or run.status.lower() for run in runs)
        ended = ", ".join(f"{kind} ({number})" for kind, number in kinds.most_common())
        going = any(run.status == "RUNNING" for run in runs)
        wait = f"Wait for those that are running, or end them with `{TRACKING} sync --ended`. " if going else ""
        raise ValueError(
            f"{' '.join(selectors)}: no run finished: {ended}. {wait}Why a run failed stands in its "
            f"note in MLflow and in worker.log. Continue a sweep with {LAUNCH} sweep.resume=ID"
        )


def names_nothing(selector: str, source: str, sweeps: Sequence[str], experiments: Sequence[str]) -> str:
    """Says that a selector names nothing, and what there is instead."""
    folder = f". Of a folder name the runs, as in {Path(selector) / '*'}" if Path(selector).is_dir() else ""
    return (
        f"{selector}: no sweep, experiment or run of this name or id in {source}. There are the sweeps "
        f"{', '.join(sweeps) or '(none)'} and the experiments {', '.join(experiments) or '(none)'}{folder}"
    )
