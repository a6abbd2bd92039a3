"""Checks, completes and orders the jobs of a command line: a new launch, a resumed run or a resumed sweep."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conf.schema import ConfigError
from tracking.jobs.plan import resume, sweep
from tracking.jobs.plan.job import Job
from tracking.request import checks, node_options
from tracking.request.search_options import is_search
from tracking.store import server


def check_distinct(jobs: Sequence[Job]) -> None:
    """Raise ConfigError if two jobs measure the same."""
    known: set[str] = set()
    for job in jobs:
        if (measured := job.config.config_hash()) in known:
            raise ConfigError(
                f"{' '.join(job.overrides)}: twice in this sweep. Next: give repeats other seeds: seed=1,2,3"
            )
        known.add(measured)


def check_profiled(jobs: Sequence[Job]) -> None:
    """Raise ConfigError if no job has the seed in `profile.seed`."""
    chosen = {job.config.profile.seed for job in jobs if job.config.profile.seed is not None}
    if chosen and not any(job.config.profiled() for job in jobs):
        seeds = ", ".join(str(seed) for seed in sorted({job.config.seed for job in jobs}))
        raise ConfigError(
            f"profile.seed={min(chosen)}: no job has this seed, so nothing would be traced. Next: give one of {seeds}"
        )


def check_paired(jobs: Sequence[Job]) -> None:
    """Raise ConfigError if `sweep.paired` is set and all jobs have the same seed."""
    seeds = {job.config.seed for job in jobs}
    if any(job.config.sweep.paired for job in jobs) and len(seeds) < 2:
        raise ConfigError(
            f"sweep.paired=true: pairs need two seeds or more, but all jobs have seed={min(seeds)}."
            " Next: give seed=1,2,3"
        )


def shuffled(jobs: Sequence[Job]) -> list[Job]:
    """The jobs in the order of `sweep.shuffle`: one seed after another, shuffled within each seed.

    Every setting runs once before any setting runs again (a randomised block design).
    """
    number = jobs[0].config.sweep.shuffle
    if number is None:
        return list(jobs)
    blocks: dict[int, list[Job]] = {}
    for job in jobs:
        blocks.setdefault(job.config.seed, []).append(job)
    for seed, block in blocks.items():
        random.Random(f"{number} {seed}").shuffle(block)
    return [job for block in blocks.values() for job in block]


def with_warm_ups(jobs: Sequence[Job], multirun: bool) -> list[Job]:
    """The jobs; `sweep.warm_up` puts an uncounted run of each stack, model and dataset before them.

    The first run of a stack starts with cold caches of files, compiled code and data. Raises ConfigError for a
    single run, since no counted run would follow the warm-up.
    """
    if not jobs[0].config.sweep.warm_up:
        return list(jobs)
    if not multirun:
        raise ConfigError(
            "sweep.warm_up=true: has no effect on a single run. Next: add -m, or give warm_up=true for this one"
        )
    firsts: dict[tuple[str, ...], Job] = {}
    for job in jobs:
        firsts.setdefault((job.config.stack.name, job.config.model.name, job.config.dataset.name), job)
    before = [
        Job(dataclasses.replace(job.config, warm_up=True), [*job.overrides, "warm_up=true"]) for job in firsts.values()
    ]
    return [*before, *jobs]


def planned(requested: Sequence[Job], multirun: bool, gpus: Sequence[Any]) -> tuple[Path | None, list[Job]]:
    """The folder of a resumed sweep (else None), and the jobs in the order of their runs. Raises ConfigError.

    The first job's config names the tracking server of all jobs, and the cluster of a resumed sweep.
    """
    for job in requested:  # Resumed jobs may name other servers, which must not get credentials.
        server.option_uri(job.config.tracking.uri)
    config, jobs = requested[0].config, list(requested)
    if config.resume:
        jobs = [resume.resumed_job(jobs[0])]
        resume.check_devices(jobs[0].config, len(gpus))
        checks.check_run(jobs[0].config, gpus)
        config = jobs[0].config
    node_options.check_single_machine(config, multirun or is_search(config))
    check_distinct(jobs)
    if not config.sweep.resume:
        check_profiled(jobs)
        check_paired(jobs)
        return None, with_warm_ups(shuffled(jobs), multirun)
    adds = multirun and not is_search(config)
    folder, jobs = sweep.resume(config.runs_dir, config.sweep.resume, with_warm_ups(jobs, multirun), adds)
    config.cluster = jobs[0].config.cluster
    if config.tracking.uri is None and "MLFLOW_TRACKING_URI" not in os.environ:
        config.tracking.uri = resume.own_server(folder)
    return folder, jobs
