"""Events of a job for the program that drives a launch: started, evaluated, and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracking.base import quantities
from tracking.base.event_stream import EventStream
from tracking.jobs.plan import Job, sweep_summary
from tracking.jobs.search import SearchJobs
from tracking.record import Record, documents, failures


def started(events: EventStream, job: Job) -> None:
    search = job.config.search
    trial: dict[str, Any] = {}
    if search.phase:
        trial = {"setting": search.setting, "phase": search.phase}
        trial |= {} if search.block is None else {"block": search.block}
        trial |= {} if search.cap_sec is None else {"cap_sec": search.cap_sec}
    events.tell("started", **_run(job), overrides=job.overrides, seed=job.config.seed, **trial)


def next_of(events: EventStream, search: SearchJobs, folder: Path) -> list[Job]:
    """The next jobs of a search; sends an event if the search has just looked at its complete blocks."""
    jobs = search.next_jobs(folder)
    for job in jobs:
        events.tell("composed", overrides=job.overrides)
    if look := search.new_look():
        events.tell("looked", **look)
    return jobs


def recorded(events: EventStream, job: Job, record: Record) -> None:
    """Send an event if a record of a run's journal is an evaluation."""
    values = record.values if record.kind == "metrics" else {}
    evaluated = {key.removeprefix(quantities.EVAL): value for key, value in values.items() if _is_evaluation(key)}
    if evaluated:
        events.tell("evaluated", **_run(job), step=record.step, metrics=documents.finite(evaluated))


def _is_evaluation(key: str) -> bool:
    return key.startswith(quantities.EVAL) and not key.startswith(quantities.BEST)


def ended(events: EventStream, job: Job) -> None:
    """Send how a run ended: reached, missed, stopped or failed, with its figures or the reason."""
    result = job.result
    assert result is not None
    metrics = documents.finite(dict(result.metrics))
    if result.failure is None:
        reached = result.metrics.get(quantities.TARGET_REACHED)
        kind = "finished" if reached is None else "reached" if reached else "missed"
        events.tell(kind, **_run(job), metrics=metrics)
        return
    kind = "stopped" if result.failure.kind in failures.STOP_CAUSES else "failed"
    events.tell(kind, **_run(job), because=sweep_summary.outcome(job), failure=result.failure.kind, metrics=metrics)


def _run(job: Job) -> dict[str, Any]:
    return {"run": job.folder.name, "folder": str(job.folder)} if job.folder else {"run": job.name}
