"""Prints what a launch would run, and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from conf.schema import ConfigError
from tracking.jobs.follow import price_words, search_price
from tracking.jobs.plan import Job, price, sweep
from tracking.jobs.queues import batch_script
from tracking.jobs.search import SearchJobs
from tracking.jobs.worker_command import worker_command
from tracking.machine.stacks import RefusedStacks, ready, summary
from tracking.record import run_folder
from tracking.request.strategy_checks import memory_words


def show(
    jobs: Sequence[Job], refused: RefusedStacks, gpus: Sequence[Any], console: Console, search_jobs: SearchJobs | None
) -> None:  # fmt: skip
    """Print each job's command or batch script, its estimate, and the price of all jobs. Raises ConfigError."""
    if jobs:
        check_room(jobs[0].config.runs_dir)
    sweep.name_jobs(jobs)
    if search_jobs:
        console.print(search_jobs.begins(), soft_wrap=True)
    estimates = price_words.estimates(jobs, gpus) if jobs and not jobs[0].config.search.name else []
    for number, job in enumerate(jobs, 1):
        console.print(f"job {number} of {len(jobs)}: {' '.join(job.overrides) or 'defaults'}", style="bold")
        console.print(preview(job, refused), soft_wrap=True, markup=False)
        if memory := memory_words(job.config, gpus):
            console.print(f"  memory: {memory}", soft_wrap=True)
        if estimates:
            console.print(f"  {price_words.of_job(job, estimates[number - 1])}", soft_wrap=True)
    if price_of_all := _price(jobs, estimates, gpus, search_jobs):
        console.print(f"price: {price_of_all}", soft_wrap=True)


def check_room(runs_dir: str) -> None:
    """Raise ConfigError if no run folder can be made in `runs_dir`, as on a full disk. Leaves nothing behind."""
    folder = Path(runs_dir).resolve()
    nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
    try:
        with TemporaryDirectory(prefix=".dry-run-", dir=nearest) as trial:
            run_folder.reserve(Path(trial))
    except OSError as error:
        why = f"nothing can be made in {nearest} ({error.strerror})"
        raise ConfigError(f"runs_dir={runs_dir}: {why}. Next: give a folder that you can write to") from error


def _price(
    jobs: Sequence[Job], estimates: Sequence[price.Estimate | None], gpus: Sequence[Any], search_jobs: SearchJobs | None
) -> str:  # fmt: skip
    """The price of all jobs, of a search within its budget, or of the blocks that decide between settings."""
    if search_jobs and search_jobs.left:
        return f"at most what is left of the budget: {search_jobs.left}"
    if not jobs:
        return ""
    if jobs[0].config.sweep.until_decided:
        return price_words.of_blocks(jobs, estimates)
    return search_price.of_search(search_jobs, gpus) if search_jobs else price_words.of_all(jobs, estimates)


def preview(job: Job, refused: RefusedStacks) -> str:
    """The command or batch script that would start the job. Raises ConfigError."""
    new = Path(job.config.runs_dir).resolve() / job.name
    if job.config.cluster.kind != "none":
        return batch_script.text(job.config, new, job.name)
    if why := refused.why(job.config):
        return f"  refused: {why}"
    if ready(job.config.stack):
        return f"  {worker_command(job.config, job.checkpoint.folder if job.checkpoint else new)}"
    return f"  after {summary(job.config.stack)}"
