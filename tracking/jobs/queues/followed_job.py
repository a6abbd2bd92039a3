"""A job that was submitted, as its launcher or follower sees it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracking.jobs.follow import JobLines, RunProgress
from tracking.jobs.node import Ticket
from tracking.jobs.plan import Job
from tracking.record import Result, run_folder


@dataclass
class Followed:
    """A job's ticket, and how far it was followed."""

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

    def read_result(self) -> Result | None:
        """The run's result; None if it is missing or cannot be read."""
        with suppress(OSError, ValueError):
            return run_folder.read_result(self.folder)
        return None
