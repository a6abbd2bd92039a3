"""A job that was submitted, and the end of jobs that were not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracking.jobs.follow import JobLines, RunProgress
from tracking.jobs.node import Ticket, outcome
from tracking.jobs.plan import Job
from tracking.record import Failure, Result, run_folder


@dataclass
class Followed:
    """A job that was submitted."""

    job: Job
    ticket: Ticket
    progress: RunProgress | JobLines
    began: float  # monotonic seconds, when it was submitted
    offset: int  # bytes of its journal that were read
    mirrored: bool = False
    gone_at: float | None = None  # monotonic seconds, when the queue no longer listed it

    @property
    def folder(self) -> Path:
        assert self.job.folder is not None
        return self.job.folder


def end_unsubmitted(jobs: Sequence[Job], failure: Failure) -> None:
    """End the runs of jobs that have a folder but were not submitted: only this process knows them."""
    for job in jobs:
        if job.owner is not None:
            job.result = outcome.end(job.owner.folder, failure)
            let_go(job)


def let_go(job: Job) -> None:
    assert job.owner
    job.owner.let_go()
    job.owner = None


def result_of(folder: Path) -> Result | None:
    """A run's result; None if it is missing or cannot be read."""
    with suppress(OSError, ValueError):
        return run_folder.read_result(folder)
    return None
