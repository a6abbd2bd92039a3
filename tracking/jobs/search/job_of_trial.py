"""A trial of a search as a job: its command line, its cap, its time limit, and how many jobs run beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from conf.schema import RunConfig
from tracking.analysis.search import EXPLORE, Rules, Scalar, SearchTrial
from tracking.jobs.plan import Job
from tracking.jobs.search.trial_of_job import cap_sec
from tracking.request.search_options import Budget, setting_overrides


def command_line(base: Job, setting: Mapping[str, Scalar]) -> list[str]:
    """The command line of a setting, without its seed. `base` is the request."""
    return [*(word for word in base.overrides if not word.startswith("seed=")), *setting_overrides(setting)]


def set_jobs_at_once(jobs: Sequence[Job], rules: Rules) -> None:
    """Set how many jobs share this machine while each of these runs, but not of those that have ended."""
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
