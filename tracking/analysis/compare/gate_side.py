"""One side of a gate: its runs' values of a metric, and notes on runs that are not averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tracking.analysis.compare.censoring import UNTIL_CENSORED
from tracking.analysis.compare.estimates import estimate
from tracking.analysis.compare.grouping import Setting
from tracking.analysis.results import Run
from tracking.analysis.statistics import Times, share
from tracking.base import quantities
from tracking.base.number_text import counted, significant, verb

TIME = quantities.TIME_TO_ACCURACY_SEC


@dataclass(frozen=True)
class Side:
    """One side's values of a metric, and how its runs ended.

    For a metric to accuracy, `given_up` holds the values at which runs had spent their budget without the target, and
    `stopped` those at which runs were stopped from outside. For any other metric such runs count like the rest.
    `reaching` are the times to accuracy, for every metric.
    """

    values: Sequence[float]
    num_finished: int  # trained to the end, with or without the target
    missed: int = 0  # finished without the target
    failed: dict[str, int] = field(default_factory=dict)  # the number of runs by kind of failure
    running: int = 0
    given_up: Sequence[float] = ()
    num_diverged: int = 0
    stopped: Sequence[float] = ()
    interval: float = 0.0
    reaching: Times = field(default_factory=lambda: Times(()))

    @property
    def num_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def times(self) -> Times:
        return Times(self.values, self.given_up, self.stopped, self.num_diverged, self.interval)

    @property
    def num_ended(self) -> int:
        return self.num_finished + self.num_failed


def side_of(runs: Sequence[Run], metric: str) -> Side:
    """The side of these runs. A failed run is counted but never averaged, whatever it logged before."""
    finished = [run for run in runs if run.finished]
    running = [run for run in runs if run.status == "RUNNING"]
    setting = Setting.of({}, runs, finished)
    times = setting.measured(metric)
    to_accuracy = metric in UNTIL_CENSORED
    short = [*setting.missed, *setting.diverged, *setting.stopped] if to_accuracy else []
    failed = [run for run in runs if run not in finished and run not in running and run not in short]
    return Side(
        times.reached,
        len(finished) + sum(not run.finished for run in short),
        setting.num_missed if to_accuracy else len(setting.missed),
        dict(Counter(run.failure or "unknown" for run in failed)),
        len(running),
        times.missed,
        times.num_diverged,
        times.stopped,
        times.interval,
        setting.measured(TIME),
    )


def reached(side: Side, metric: str) -> str:
    """How many runs reached the target, in words; "" without runs, or for a metric that is not to accuracy."""
    proportion = share(len(side.values), len(side.values) + side.missed) if metric in UNTIL_CENSORED else None
    return proportion.text if proportion else ""


def remarks(baseline: Side, candidate: Side, metric: str) -> list[str]:
    """Notes on runs that failed, missed the target, were stopped, have no value, or still run."""
    notes = []
    to_accuracy = metric in UNTIL_CENSORED
    for name, side in (("baseline", baseline), ("candidate", candidate)):
        if side.num_failed:
            failed = f"{side.num_failed} of {counted(side.num_ended, 'run')} failed"
            notes.append(f"{name}: {failed} and {verb('are', side.num_failed)} not counted: {kinds(side.failed)}")
        if side.missed and to_accuracy:
            unknown = sum(when == 0.0 for when in side.given_up)
            when = f", {unknown} of them at an unknown time" if unknown else ""
            missed = f"{side.missed} of {counted(side.num_finished, 'run')} did not reach the target"
            notes.append(f"{name}: {missed}, and {verb('count', side.missed)} against it{when}")
        elif side.missed:
            notes.append(f"{name}: {of_finished(side.missed, side)} missed the target")
        if side.stopped:
            stopped = f"{len(side.stopped)} of {counted(side.num_finished, 'run')}"
            notes.append(f"{name}: {stopped} {verb('were', len(side.stopped))} stopped before the target was reached")
        num_lost = 0 if to_accuracy else side.num_diverged
        if num_lost:
            lost = f"{metric} became NaN in {of_finished(num_lost, side)}"
            notes.append(f"{name}: {lost}, and {verb('count', num_lost)} against it")
        num_without = side.num_finished - len(side.values) - len(side.stopped)
        num_without -= side.missed if to_accuracy else num_lost
        if num_without > 0:
            notes.append(f"{name}: {of_finished(num_without, side)} {verb('have', num_without)} no {metric}")
        if side.running:
            notes.append(f"{name}: left out: {counted(side.running, 'run')} still running")
    return notes


def of_finished(count: int, side: Side) -> str:
    return f"{count} of {counted(side.num_finished, 'finished run')}"


def kinds(failed: dict[str, int]) -> str:
    return ", ".join(f"{kind} ({count})" for kind, count in failed.items())


def described(times: Times) -> str:
    mean = estimate(times)
    if mean is None:
        return ""
    shown = f"{mean.bound} {significant(mean.mean, 5)}".lstrip()
    return shown if mean.error is None else f"{shown} ± {significant(mean.error, 2)}"
