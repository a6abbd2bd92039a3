"""Runs as reports, diffs and gates see them: the same from MLflow (mlflow_runs) and from run folders (folder_runs).

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
from tracking.record import UNKNOWN_TAG, failures

# Runs are comparable only if these are the same.
TASK = ("model", "dataset", "target_metric", "target_value")
UNCOUNTED_TAG = "timetrial.uncounted"  # the reason why no mean counts a run, even a successful one
EXPLORING = "exploring"  # the value of UNCOUNTED_TAG for runs of a search's exploration
SEARCH_TAG = "timetrial.search"  # "decide": a search compared the run before it chose whether to make more
PAIRED_TAG = "timetrial.paired"  # "seed": the run was made to be compared in pairs (sweep.paired)
BETTER_TAG = "timetrial.better"  # which way each metric is better, as declared or implied by a target
REPEATS = ("seed",)  # params that differ between repeats of a setting
MAX_LISTED = 10  # sweeps listed in the message about an unknown selector
History = dict[str, list[tuple[int, int, float]]]  # by key: (step, time in ms, value), in order of step and time
Progress = Callable[[int], None]  # called with the number of runs read so far for a selector


class End(Enum):
    """How a run ended. MISSED and DIVERGED count as misses of the target; STOPPED is unknown."""

    REACHED = "reached its target"
    MISSED = "spent its budget (max_epochs) without reaching its target"
    TRAINED = "trained to its end, without a target"
    DIVERGED = "its loss became NaN or infinite: it never reaches a target"
    STOPPED = "stopped from outside"
    FAILED = "failed otherwise"
    RUNNING = "has not ended"


@dataclass(frozen=True)
class Run:
    """One run as in MLflow; `metrics` are the newest values. A sweep's parent run is never a Run."""

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
        """Whether the run trained to its end, with or without the target."""
        return self.status == "FINISHED"

    @property
    def failure(self) -> str | None:
        """The kind of the run's failure (oom, nan, signal:9, ...), or None."""
        return self.tags.get("failure") or (None if self.status in ("FINISHED", "RUNNING") else "unknown")

    @property
    def end(self) -> End:
        if self.status == "RUNNING":
            return End.RUNNING
        if self.failure == "nan":
            return End.DIVERGED
        if self.failure:
            return End.STOPPED if self.failure in failures.STOP_CAUSES else End.FAILED
        ends = {1.0: End.REACHED, 0.0: End.MISSED}
        return ends.get(self.metrics.get(quantities.TARGET_REACHED, math.nan), End.TRAINED)

    @property
    def has_target(self) -> bool:
        return bool(self.params.get("target_metric"))

    @cached_property
    def directions(self) -> dict[str, str]:
        """Which way each metric is better (conf.metric), by name; older runs declare it only by their targets."""
        names, values = (self.params.get(f"target_{part}", "").split(",") for part in ("metric", "value"))
        of_targets = directions_of({name: value for name, value in zip(names, values, strict=False) if name and value})
        return metric.from_tag(self.tags.get(BETTER_TAG, "")) | of_targets

    @property
    def sweep(self) -> str | None:
        return self.tags.get("sweep")

    @property
    def resumed(self) -> bool:
        """Whether the run was interrupted and continued; such a run has no time to accuracy."""
        return "resumed" in self.tags

    @property
    def paired(self) -> bool:
        """Whether the run was made to be compared with runs with the same seed."""
        return self.tags.get(PAIRED_TAG) == "seed"

    @property
    def searched(self) -> bool:
        """Whether a search decided with the run. A test that ignores the search's looks errs too often."""
        return self.tags.get(SEARCH_TAG) == "decide"

    @property
    def uncounted(self) -> str | None:
        """The reason why no mean counts the run, such as "warm-up" for a run that only fills caches; else None."""
        return self.tags.get(UNCOUNTED_TAG)


def told(metrics: Mapping[str, float], tags: Mapping[str, str]) -> dict[str, float]:
    """The metrics that are not marked as unknown (UNKNOWN_TAG). Unknown ones may still have curves."""
    unknown = tuple(filter(None, tags.get(UNKNOWN_TAG, "").split(",")))
    return {key: value for key, value in metrics.items() if not key.startswith(unknown)}


class Runs(Protocol):
    """A source of runs. `source` names it in messages, without credentials."""

    source: str

    def find(self, selectors: Sequence[str], progress: Progress | None = None) -> list[Run]:
        """The runs that the selectors name, each once, by start. Raises ValueError for a selector without runs."""

    def history(self, run: Run, keys: Iterable[str]) -> History:
        """All values of these metrics; keys that the run does not have are left out."""

    def text(self, run: Run, name: str) -> str:
        """The text of a run's file, such as config.yaml or fingerprint.json. Raises FileNotFoundError."""


def newest_attempts(runs: Sequence[Run]) -> list[Run]:
    """The runs without failed attempts that their sweep ran again, so that each job counts once.

    A run that diverged stays, even if a later attempt of its job did not diverge. It goes only if a later one diverged
    too.
    """
    newest: dict[tuple[str, str], Run] = {}  # by sweep and configuration
    for run in sorted(runs, key=lambda run: run.start_ms):
        if job := _sweep_and_config(run):
            newest[job] = run

    def stays(run: Run) -> bool:
        last = newest.get(_sweep_and_config(run) or ("", ""), run)
        return (
            not run.failure
            or run.start_ms >= last.start_ms
            or (run.end is End.DIVERGED and last.end is not End.DIVERGED)
        )

    return [run for run in runs if stays(run)]


def _sweep_and_config(run: Run) -> tuple[str, str] | None:
    """The sweep and the configuration of a run's job; None outside of sweeps."""
    return (run.sweep, run.tags["config_hash"]) if run.sweep and "config_hash" in run.tags else None


def none_finished(runs: Sequence[Run], selectors: Sequence[str]) -> str:
    """How the runs ended, and what to do next, if no run trained to its end; else empty."""
    if any(run.finished for run in runs):
        return ""
    kinds = Counter(run.failure or run.status.lower() for run in runs)
    ended = ", ".join(f"{kind} ({number})" for kind, number in kinds.most_common())
    running = any(run.status == "RUNNING" for run in runs)
    wait = f"Wait for the running ones, or mark them as ended with `{TRACKING} sync --ended`. " if running else ""
    return (
        f"{' '.join(selectors)}: no run finished: {ended}. {wait}Next: see why in its note in MLflow and its"
        f" worker.log; continue a sweep with {LAUNCH} sweep.resume=ID"
    )


def no_file(run: Run, name: str, place: str | Path) -> FileNotFoundError:
    """The error for a file that a run lacks in its folder or on its server."""
    return FileNotFoundError(f"{run.name} has no file {name} in {place}. Next: put it back, or leave this run out")


def names_nothing(selector: str, source: str, sweeps: Sequence[str], experiments: Sequence[str]) -> str:
    """The message for a selector that names nothing, with the sweeps and experiments that exist."""
    folder = f". For a folder, name its runs, as in {Path(selector) / '*'}" if Path(selector).is_dir() else ""
    return (
        f"{selector}: no sweep, experiment or run of this name or id in {source}. There are the sweeps "
        f"{', '.join(sweeps) or '(none)'} and the experiments {', '.join(experiments) or '(none)'}{folder}"
    )
