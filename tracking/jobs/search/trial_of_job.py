"""What a search knows of a job: a trial, read from the job's folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tracking.analysis.compare import censoring
from tracking.analysis.results import EXPLORING
from tracking.analysis.search import DECIDE, Key, SearchTrial, Second, key_of
from tracking.base import quantities
from tracking.jobs.plan import Job, sweep_cost, sweep_summary
from tracking.jobs.search.answer_words import Rates
from tracking.jobs.search.fronts import Point
from tracking.record import Result, failures, journal, run_folder
from tracking.request.search_options import Budget, objectives_of

LEAST = 1e-9  # of a value, whose logarithm is taken
KEYS = {
    "time": quantities.TIME_TO_ACCURACY_SEC,
    "cost": quantities.COST_TO_ACCURACY_USD,
    "energy": quantities.ENERGY_TO_ACCURACY_JOULES,
}


def trials_of(jobs: Sequence[Job], budget: Budget) -> list[SearchTrial]:
    """The jobs as trials. Runs side by side on this machine share what the time that they have in common costs."""
    ended = [spans(job) for job in jobs]
    running = [(start, math.inf) for job in jobs if job.result is None and (start := span(job.folder)[0])]
    parts = iter(
        sweep_cost.parts_of_time([(start, start + length) for own in ended for start, length in own] + running)
    )
    return [trial_of(job, budget, [next(parts) for _ in own]) for job, own in zip(jobs, ended, strict=True)]


def trial_of(job: Job, budget: Budget, parts_sec: Sequence[float] | None = None) -> SearchTrial:
    """The job as a trial: running while it has no result. What its runs took is in the unit of the budget, and that
    of runs that were lost is in it.

    `parts_sec` are the parts that its runs have of the time of runs side by side; without, each was alone.
    """
    search, result = job.config.search, job.result
    alone = [budget.of(job.config, length) for _, length in spans(job)]
    shared = budget.unit == "seconds" or (budget.unit == "usd" and sweep_cost.shares_node(job.config))
    costs = [budget.of(job.config, part) for part in parts_sec] if shared and parts_sec is not None else alone
    objectives = objectives_of(search)
    caps = [in_unit(job, objective, search.cap_sec) for objective in objectives]
    trial = SearchTrial(
        search.setting, job.config.seed, search.phase, search.block, cap=caps[0], cost=math.fsum(costs),
        second=Second(caps[1]) if len(caps) > 1 else None,
    )  # fmt: skip
    if result is None or not job.settled:  # An interrupted run says nothing, and is run again.
        return trial
    closest = result.metrics.get(quantities.BEST + next(iter(job.config.targets())))
    trial = replace(trial, alone=alone[-1] if alone[-1] != trial.cost else None, metric=closest)
    metrics, keys = sweep_summary.run_of(job).metrics, [KEYS[objective] for objective in objectives]
    reached = job.finished and _is_counted(job) and result.metrics.get(quantities.TARGET_REACHED) == 1.0
    if reached and all(key in metrics for key in keys):
        seen = [
            {"value": max(metrics[key], LEAST), "interval": censoring.interval_of(key, metrics) or 0.0} for key in keys
        ]
        return _with(replace(trial, state="reached"), seen)
    state = _state(job, result)
    diverged = result.failure is not None and result.failure.kind == "nan"  # No time brings it to its target.
    unknown = state == "failed" or diverged
    bounds = [None if unknown else censoring.censored_at(key, metrics) for key in keys]
    return _with(replace(trial, state=state), [{"censored_at": bound} for bound in bounds])


def _with(trial: SearchTrial, seen: Sequence[Mapping[str, Any]]) -> SearchTrial:
    """The trial with what was seen of it by each objective."""
    second = replace(trial.second, **seen[1]) if trial.second else None
    return replace(trial, **seen[0], second=second)


def _is_counted(job: Job) -> bool:
    """Whether the run's figures are what they seem, as those of any run of a mean."""
    return sweep_summary.uncounted(job) in ("", EXPLORING)


def _state(job: Job, result: Result) -> str:
    """How a run without a value ended: by its own budget, by a limit, or by a failure that says nothing of its time."""
    if result.failure is None:
        missed = result.metrics.get(quantities.TARGET_REACHED) == 0.0
        return "missed" if missed and _is_counted(job) else "failed"
    if result.failure.kind == "nan":
        return "missed"
    return "stopped" if result.failure.kind in failures.STOPPED_BY else "failed"


def in_unit(job: Job, objective: str, cap_sec: float | None) -> float | None:
    """A cap in the unit of an objective; None where it is no time of the clock: a counter of energy says no cap."""
    if cap_sec is None or objective == "energy":
        return None
    if objective == "cost":
        return cap_sec / 3600 * (job.config.instance.price_per_hour or 0.0) * job.config.nodes
    return cap_sec


def cap_sec(job: Job, trial: SearchTrial) -> float | None:
    """The trial's cap in seconds of the training's clock; None where an objective has none, or is no multiple of them.

    Of two objectives the later cap: before it, the run may be the best by one of them.
    """
    caps = [trial.cap, trial.second.cap] if trial.second else [trial.cap]
    known = []
    for objective, cap in zip(objectives_of(job.config.search), caps, strict=True):
        per_sec = in_unit(job, objective, 1.0)
        if cap is None or not per_sec:
            return None
        known.append(cap / per_sec)
    return max(known)


def points(jobs: Sequence[Job], objectives: Sequence[str]) -> list[Point]:
    """The runs that reached their target and have a value by both objectives."""
    keys, known = [KEYS[objective] for objective in objectives], []
    for job in jobs:
        metrics = sweep_summary.run_of(job).metrics if job.finished else {}
        if job.settled and all(key in metrics for key in keys):
            search = job.config.search
            trial = SearchTrial(search.setting, job.config.seed, search.phase, search.block, state="reached")
            known.append(Point(trial, metrics[keys[0]], metrics[keys[1]]))
    return known


def rates(jobs: Sequence[Job]) -> Rates:
    """The mean rate and epochs of each setting's deciding runs that reached the target."""
    seen: dict[Key, list[Mapping[str, float]]] = {}
    for job in jobs:
        if job.result and job.config.search.phase == DECIDE and job.result.metrics.get(quantities.TARGET_REACHED):
            seen.setdefault(key_of(job.config.search.setting), []).append(job.result.metrics)

    def mean(runs: Sequence[Mapping[str, float]], key: str) -> float | None:
        values = [run[key] for run in runs if key in run]
        return fmean(values) if values else None

    keys = quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.EPOCHS_TO_ACCURACY
    return {setting: (mean(runs, keys[0]), mean(runs, keys[1])) for setting, runs in seen.items()}


def seconds_of(jobs: Sequence[Job]) -> tuple[list[float], list[float]]:
    """What each run took that ended by itself, and each one that its time limit ended."""
    whole, cut = list[float](), list[float]()
    for job in jobs:
        if job.result and job.settled and (seconds := span(job.folder)[1]):
            kind = job.result.failure.kind if job.result.failure else ""
            whole += [] if kind else [seconds]
            cut += [seconds] if kind == "timeout" else []
    return whole, cut


def spans(job: Job) -> list[tuple[float, float]]:
    """The spans of the job's runs that have ended: those that were lost, and its newest one."""
    lost = [span(folder) for folder in job.lost if folder != job.folder]
    return lost if job.result is None else [*lost, span(job.folder)]


def span(folder: Path | None) -> tuple[float, float]:
    """When a run started, in seconds of the wall clock, and what it took to its last record; what waited for it
    before is not counted. Both are 0 where that cannot be read."""
    if folder is None:
        return 0.0, 0.0
    with suppress(OSError, ValueError):
        return journal.span(folder / run_folder.JOURNAL)
    return 0.0, 0.0
