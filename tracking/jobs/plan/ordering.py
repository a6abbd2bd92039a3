"""Which jobs a sweep has, and in which order they run."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from conf.schema import ConfigError
from tracking.jobs.plan.job import Job


def check_profiled(jobs: Sequence[Job]) -> None:
    """Raise ConfigError where the seed whose runs are to be traced is none of the jobs'."""
    wanted = {job.config.profile.seed for job in jobs if job.config.profile.seed is not None}
    if wanted and not any(job.config.profiled() for job in jobs):
        seeds = ", ".join(str(seed) for seed in sorted({job.config.seed for job in jobs}))
        raise ConfigError(
            f"profile.seed={min(wanted)}: no job has this seed, so nothing would be traced; give one of {seeds}"
        )


def check_paired(jobs: Sequence[Job]) -> None:
    """Raise ConfigError where runs are to be compared in pairs by seed, and all have the same one."""
    seeds = {job.config.seed for job in jobs}
    if any(job.config.sweep.paired for job in jobs) and len(seeds) < 2:
        raise ConfigError(
            f"sweep.paired=true: pairs take two seeds, and all jobs have seed={min(seeds)}; give seed=1,2,3"
        )


def shuffled(jobs: Sequence[Job]) -> list[Job]:
    """The jobs in the order that `sweep.shuffle` asks for: seed after seed, each with its jobs shuffled.

    So every setting has run once before any runs again (a randomised block design).
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
    """The jobs; with `sweep.warm_up`, before them one that is not counted for each stack, model and dataset.

    The first run of a stack finds its files, its compiled code and its data in no cache. Raises ConfigError for a
    single run, which has nothing to be before.
    """
    if not jobs[0].config.sweep.warm_up:
        return list(jobs)
    if not multirun:
        raise ConfigError(
            "sweep.warm_up=true: has no effect on a single run; add -m, or give warm_up=true for this one"
        )
    firsts: dict[tuple[str, ...], Job] = {}
    for job in jobs:
        firsts.setdefault((job.config.stack.name, job.config.model.name, job.config.dataset.name), job)
    before = [
        Job(dataclasses.replace(job.config, warm_up=True), [*job.overrides, "warm_up=true"]) for job in firsts.values()
    ]
    return [*before, *jobs]
