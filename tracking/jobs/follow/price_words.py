"""Price estimates of jobs in words, and their error after the jobs have run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.analysis.search import Rules
from tracking.base.number_text import counted, significant
from tracking.jobs.follow.job_words import duration
from tracking.jobs.plan import Job, earlier_runs, price
from tracking.machine.environment import cpu_model, nvml
from tracking.record import run_folder
from tracking.request.search_options import Budget, budget_of


def here(config: RunConfig, gpus: Sequence[Any]) -> earlier_runs.Place:
    """The hardware a job would use on this machine; unknown for a cluster's nodes."""
    if config.cluster.kind != "none":
        return earlier_runs.Place()
    return earlier_runs.Place(nvml.names(gpu.name for gpu in config.chosen(gpus)), cpu_model())


def estimates(jobs: Sequence[Job], gpus: Sequence[Any], imports: bool | None = None) -> list[price.Estimate | None]:
    """An estimate for each job of a launch; None if no earlier run is similar.

    `imports`: whether each job waits for imports; default: the answers of price.must_import.
    """
    models = {job.config.model.name for job in jobs}
    runs = earlier_runs.earlier_runs(Path(jobs[0].config.runs_dir), models)
    flags = price.must_import([job.config for job in jobs]) if imports is None else [imports] * len(jobs)
    return [
        price.estimate(job.config, here(job.config, gpus), runs, flag) if runs else None
        for job, flag in zip(jobs, flags, strict=True)
    ]


def of_job(job: Job, estimate: price.Estimate | None) -> str:
    if estimate is None:
        return f"no estimate: no earlier run of {job.config.model.name} on this hardware is like it"
    runs = counted(estimate.num_runs, "earlier run")
    return f"about {_times(estimate.seconds)}, from {runs}" + (f" {estimate.of}" if estimate.of else "")


def of_all(jobs: Sequence[Job], estimates: Sequence[price.Estimate | None]) -> str:
    """Total of the jobs with an estimate, and the number without one; empty without jobs."""
    known = [(job.config, each) for job, each in zip(jobs, estimates, strict=True) if each]
    if not known:
        return f"{counted(len(jobs), 'job')}: no estimate" if jobs else ""
    whole = price.price(known)
    parts = [f"about {_times(whole.seconds)}"]
    parts += [f"{_range(whole.gpu_hours, amount)} GPU-hours"] if whole.gpu_hours else []
    parts += [f"{_range(whole.usd, amount)} USD"] if whole.usd else []
    number = counted(len(jobs), "job") if len(known) == len(jobs) else f"{len(known)} of {counted(len(jobs), 'job')}"
    left = len(jobs) - len(known)
    return f"{number}: {', '.join(parts)}" + (f"; no estimate of {left}" if left else "")


def of_blocks(jobs: Sequence[Job], estimates: Sequence[price.Estimate | None]) -> str:
    """Price of repeating these jobs until the best is decided or the budget is spent."""
    search, looks, num = jobs[0].config.search, Rules.looks, len(jobs)
    known = [(job.config, each) for job, each in zip(jobs, estimates, strict=True) if each]
    quick, slow = _blocks_within(budget_of(search), num, known)
    fewest, most = int(min(looks[0], slow)), int(max(1, min(looks[-1], quick)))
    words = f"{fewest} to {most} blocks of {counted(num, 'job')}, {fewest * num} to {most * num} runs"
    parts = ["no estimate"]
    if len(known) == num:
        whole, least, longest = price.price(known), min(looks[0], quick), min(looks[-1], slow)

        def span(block: price.Range, words: Callable[[float], str]) -> str:
            return f"{words(least * block.low)} to {words(longest * block.high)}"

        parts = [span(whole.seconds, time if longest * whole.seconds.high < 59.95 else duration)]
        parts += [f"{span(whole.gpu_hours, amount)} GPU-hours"] if whole.gpu_hours else []
        parts += [f"{span(whole.usd, amount)} USD"] if whole.usd else []
    return f"{words}: {', '.join(parts)}; search.budget={search.budget} is the limit"


def _blocks_within(budget: Budget, num: int, known: Sequence[tuple[RunConfig, price.Estimate]]) -> list[float]:
    """Blocks of `num` jobs that a budget holds, at the low and at the high end of the estimates."""
    if budget.unit == "runs":
        return [budget.amount // num] * 2
    if len(known) < num:
        return [math.inf] * 2
    costs = [math.fsum(budget.used_by(config, each.seconds[end]) for config, each in known) for end in (0, 2)]
    return [budget.amount / cost if cost else math.inf for cost in costs]


def how_far_off(folder: Path, num_jobs: int) -> str:
    """The time of a folder's finished runs compared with its estimate; empty without an estimate.

    `folder` is a run, or a sweep of `num_jobs`. The estimate uses runs that had ended before the folder was made.
    It is computed afterwards, so it delays no start, and detached or resumed sweeps have one too.
    """
    done = earlier_runs.finished_in(folder)
    models = {run.config.model.name for run in done}
    began_ms = run_folder.read_info(folder).created_ms
    before = earlier_runs.earlier_runs(folder.parent, models, began_ms) if done else []
    known = [(run, made) for run in done if (made := price.estimate(run.config, run.place, before, run.has_imported))]
    if not known:
        return ""
    seconds = price.sweep_sec([(run.config, run.seconds) for run, _ in known])
    estimate = price.price([(run.config, made) for run, made in known]).seconds
    subject = "" if num_jobs == 1 else "jobs " if len(known) == num_jobs else f"{len(known)} of {num_jobs} jobs "
    return f"{subject}took {time(seconds)}; the estimate was {_times(estimate)}, {_beside(estimate.middle / seconds)}"


def _beside(ratio: float) -> str:
    """Estimated over actual time in words: a percentage within a factor of 2, else the factor."""
    off = round(100 * (ratio - 1))
    if not 0.5 <= ratio <= 2:
        return f"{significant(ratio)} times as long"
    return f"{abs(off)} % {'more' if off > 0 else 'less'}" if off else "the same"


def _range(values: price.Range, words: Callable[[float], str]) -> str:
    return f"{words(values.middle)} ({words(values.low)} to {words(values.high)})"


def _times(values: price.Range) -> str:
    """A range with all values in seconds, or all in minutes."""
    return _range(values, time if values.high < 59.95 else duration)


def time(sec: float) -> str:
    return f"{sec:.1f} s" if sec < 59.95 else duration(sec)


def amount(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:#.2g}"
