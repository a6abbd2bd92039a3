"""A job of a search as a trial, read from the job's folder; and a trial as the job that runs it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.analysis.compare import censoring
from tracking.analysis.results import EXPLORING
from tracking.analysis.search import EXPLORE, Rules, Scalar, SearchTrial, Second
from tracking.base import quantities
from tracking.jobs.plan import Job, sweep_cost, sweep_summary
from tracking.jobs.search.fronts import Point
from tracking.record import Result, evaluations, failures, journal, run_folder
from tracking.request.search_options import Budget, objectives_of, setting_overrides

LEAST = 1e-9  # the least value, since its logarithm is taken
KEYS = {
    "time": quantities.TIME_TO_ACCURACY_SEC,
    "cost": quantities.COST_TO_ACCURACY_USD,
    "energy": quantities.ENERGY_TO_ACCURACY_JOULES,
}


def trials_of(jobs: Sequence[Job], budget: Budget) -> list[SearchTrial]:
    """The jobs as trials. Concurrent runs on this machine share the cost of the time that they have in common."""
    ended = [spans(job) for job in jobs]
    running = [(start, math.inf) for job in jobs if job.result is None and (start := span(job.folder)[0])]
    parts = iter(
        sweep_cost.parts_of_time(
            [(start, start + length) for job_spans in ended for start, length in job_spans] + running
        )
    )
    return [trial_of(job, budget, [next(parts) for _ in job_spans]) for job, job_spans in zip(jobs, ended, strict=True)]


def trial_of(job: Job, budget: Budget, parts_sec: Sequence[float] | None = None) -> SearchTrial:
    """The job as a trial, which is running while the job has no result.

    Its cost is in the budget's unit and includes lost runs. `parts_sec` are its runs' shares of the time of concurrent
    runs; without them, each run was alone.
    """
    search, result = job.config.search, job.result
    alone = [budget.used_by(job.config, length) for _, length in spans(job)]
    shared = budget.unit == "seconds" or (budget.unit == "usd" and sweep_cost.shares_node(job.config))
    costs = [budget.used_by(job.config, part) for part in parts_sec] if shared and parts_sec is not None else alone
    objectives = objectives_of(search)
    caps = [in_unit(job, objective, search.cap_sec) for objective in objectives]
    trial = SearchTrial(
        search.setting, job.config.seed, search.phase, search.block, cap=caps[0], cost=math.fsum(costs),
        second=Second(caps[1]) if len(caps) > 1 else None,
    )  # fmt: skip
    if result is None or not job.settled:  # An interrupted run says nothing about its setting, and is repeated.
        return trial
    trial = replace(trial, alone=alone[-1] if alone[-1] != trial.cost else None, metric=_best_value(job, result))
    metrics, keys = sweep_summary.run_of(job).metrics, [KEYS[objective] for objective in objectives]
    reached = job.finished and _is_counted(job) and result.metrics.get(quantities.TARGET_REACHED) == 1.0
    if reached and all(key in metrics for key in keys):
        observations = [
            {"value": max(metrics[key], LEAST), "interval": censoring.interval_of(key, metrics) or 0.0} for key in keys
        ]
        return _with(replace(trial, state="reached"), observations)
    state = _state(job, result)
    diverged = result.failure is not None and result.failure.kind == "nan"  # No amount of time reaches the target.
    unknown = state == "failed" or diverged
    bounds = [None if unknown else censoring.censored_at(key, metrics) for key in keys]
    return _with(replace(trial, state=state), [{"censored_at": bound} for bound in bounds])


def _with(trial: SearchTrial, observations: Sequence[Mapping[str, Any]]) -> SearchTrial:
    """The trial with its observation by each objective."""
    second = replace(trial.second, **observations[1]) if trial.second else None
    return replace(trial, **observations[0], second=second)


def _best_value(job: Job, result: Result) -> float | None:
    """The best value of the target's metric; for a run that did not finish, from its journal."""
    name = next(iter(job.config.targets()))
    if job.finished or job.folder is None:
        return result.metrics.get(quantities.BEST + name)
    events = journal.events(job.folder / run_folder.JOURNAL)
    rows = [event.values["metrics"] for event in events if event.key == "eval_accuracy"]
    return evaluations.best(rows, [name], job.config.directions()).get(quantities.BEST + name)


def _is_counted(job: Job) -> bool:
    """Whether the run's figures may enter a mean."""
    return sweep_summary.uncounted(job) in ("", EXPLORING)


def _state(job: Job, result: Result) -> str:
    """The state of a run without a value: missed (or diverged), stopped by a limit, or failed (time unknown)."""
    if result.failure is None:
        missed = result.metrics.get(quantities.TARGET_REACHED) == 0.0
        return "missed" if missed and _is_counted(job) else "failed"
    if result.failure.kind == "nan":
        return "missed"
    return "stopped" if result.failure.kind in failures.STOP_CAUSES else "failed"


def in_unit(job: Job, objective: str, cap_sec: float | None) -> float | None:
    """A cap in the unit of an objective; None for energy, which no clock time can cap."""
    if cap_sec is None or objective == "energy":
        return None
    if objective == "cost":
        return cap_sec / 3600 * (job.config.instance.price_per_hour or 0.0) * job.config.nodes
    return cap_sec


def cap_sec(job: Job, trial: SearchTrial) -> float | None:
    """The trial's cap in seconds of the training's clock; None if an objective has no cap or cannot be timed.

    With two objectives, the later cap counts: before it, the run may still be the best by one of them.
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


def seconds_of(jobs: Sequence[Job]) -> tuple[list[float], list[float]]:
    """The seconds of each run that ended by itself, and of each run that its time limit ended."""
    whole, cut = list[float](), list[float]()
    for job in jobs:
        if job.result and job.settled and (seconds := span(job.folder)[1]):
            kind = job.result.failure.kind if job.result.failure else ""
            whole += [] if kind else [seconds]
            cut += [seconds] if kind == "timeout" else []
    return whole, cut


def spans(job: Job) -> list[tuple[float, float]]:
    """The spans of the job's ended runs: lost runs, and its newest one."""
    lost = [span(folder) for folder in job.lost if folder != job.folder]
    return lost if job.result is None else [*lost, span(job.folder)]


def span(folder: Path | None) -> tuple[float, float]:
    """A run's start (wall clock) and its length up to its last record, in seconds, without the wait before its start.

    Both are 0 if the journal cannot be read.
    """
    if folder is None:
        return 0.0, 0.0
    with suppress(OSError, ValueError):
        return journal.span(folder / run_folder.JOURNAL)
    return 0.0, 0.0


def command_line(base: Job, setting: Mapping[str, Scalar]) -> list[str]:
    """The command line of a setting, without its seed. `base` is the request."""
    return [*(word for word in base.overrides if not word.startswith("seed=")), *setting_overrides(setting)]


def set_jobs_at_once(jobs: Sequence[Job], rules: Rules) -> None:
    """Set how many jobs share this machine, for each of these jobs that has not ended."""
    for config in (job.config for job in jobs if not job.settled):
        takes_all = 0 < rules.num_gpus <= config.num_gpus()
        is_shared = config.search.phase == EXPLORE and config.cluster.kind == "none" and not takes_all
        config.sweep.jobs_at_once = rules.at_once if is_shared else 1


def job_of_trial(
    trial: SearchTrial, base: Job, number: int, rules: Rules, budget: Budget, left: float,
    make: Callable[[list[str]], RunConfig],
) -> Job:  # fmt: skip
    """The job of a trial, whose `number` counts from 1. `make` composes a config. Raises ConfigError.

    `left` is what is left of the `budget`. It limits a run's time if no earlier run shows how long such a run takes.
    """
    words = [*command_line(base, trial.setting), f"seed={trial.seed}"]
    job = Job(make(words), words)
    config = job.config
    config.search = dataclasses.replace(
        base.config.search, setting=dict(trial.setting), phase=trial.phase, block=trial.block, trial=number
    )
    config.search.cap_sec = cap_sec(job, trial)
    set_jobs_at_once([job], rules)
    unforeseen = trial.phase == EXPLORE or (trial.block == 0 and not rules.explore)
    a_second = budget.used_by(config, 1.0) if budget.unit != "runs" else 0.0  # On a CPU it uses no GPU-hours.
    if a_second and unforeseen and config.timeout_sec is None:
        config.timeout_sec = max(1.0, left / a_second)
    return job
