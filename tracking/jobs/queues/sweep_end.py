"""What a launcher writes and prints at the end of a run, a sweep or a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tracking.base.console import Drawing
from tracking.base.event_stream import EventStream
from tracking.base.installation import LAUNCH
from tracking.base.safe_text import path_to_type
from tracking.jobs.follow import price_words, result_table, search_price
from tracking.jobs.node import signals
from tracking.jobs.plan import Job, sweep, sweep_cost, sweep_report, sweep_summary, sweep_waste
from tracking.jobs.search import SearchJobs
from tracking.jobs.watch import Alerts
from tracking.measure.bottleneck import goodput
from tracking.record import checkpoints
from tracking.request import refusal


def finish(console: Console, events: EventStream, jobs: Sequence[Job], folder: Path, search: SearchJobs | None) -> None:
    """Write the summary; print a search's answer, or the table and the report's answer; then folder and cost."""
    if search:
        with Drawing(console, "how far off the estimate was is not known"):
            search.how_far_off = search_price.how_far_off(folder, len(jobs))
    with Drawing(console, "the search's trace and pictures are not written"):
        if search:
            search.finish(folder)
    with Drawing(console, "the sweep's summary is not written"):
        sweep.finish(folder, jobs, answer=search.told(folder) if search else None)
    with Drawing(console, "the sweep's table is not shown"):
        if search:
            events.tell("answer", **search.told(folder))
            search.show(console)
        else:
            if len(jobs) == 1 and jobs[0].result:  # Jobs of larger sweeps got a line as they ended.
                console.print(f"  {jobs[0].name}: {sweep_summary.outcome(jobs[0])}", soft_wrap=True)
            console.print(sweep_summary.table(folder.name, jobs))
            for line in sweep_report.headlines(folder) if all(job.result for job in jobs) else ():
                console.print(line, style="bold", markup=False, soft_wrap=True)
            _say_how_far_off(console, folder, len(jobs))
    if words := goodput.words(goodput.sum_over_runs(goodput.job_parts(folder))):
        console.print(f"goodput of all jobs, from submission to the end: {words}", soft_wrap=True)
    console.print(f"sweep folder: {path_to_type(folder)}", soft_wrap=True)
    if (usd := sweep_cost.spent_usd(folder)) is not None:
        console.print(f"cost of the sweep: {usd:,.2f} USD, each job from its start to its end")
    with Drawing(console, "what was spent in vain is not known"):
        if words := sweep_waste.words(sweep_waste.write(folder)):
            console.print(words, soft_wrap=True)
    signals.raise_on_signals()  # Ctrl-C ends the alert's command, even if an earlier Ctrl-C stopped the sweep.
    alerts = Alerts(console)
    alerts.sweep_ended(jobs, folder)
    alerts.close()


def finish_run(console: Console, job: Job, folder: Path) -> None:
    """Print the table of a run, how far off its estimate was, and how to continue it if it failed."""
    assert job.result is not None
    with Drawing(console, "the run's table is not shown"):
        console.print(result_table.run_table(job.name, folder, job.result))
        _say_how_far_off(console, folder)
    if job.result.failure and checkpoints.in_folder(folder):
        option = refusal.path_option("resume", path_to_type(folder))
        console.print(f"continue it with: {LAUNCH} {option}", soft_wrap=True)


def _say_how_far_off(console: Console, folder: Path, num_jobs: int = 1) -> None:
    if words := price_words.how_far_off(folder, num_jobs):
        console.print(words, soft_wrap=True)
