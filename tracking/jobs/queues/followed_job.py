"""A job that was submitted, as its launcher or follower sees it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from conf.schema import ConfigError
from tracking.jobs.follow import JobLines, RunProgress, Waiting
from tracking.jobs.node import Ticket, outcome, scheduler_endings, signals, slurm, ticket
from tracking.jobs.plan import Job
from tracking.jobs.queues import this_machine
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

    def result_of_gone(
        self, state: slurm.JobState | None, stopped_by: signals.Interrupted | None, outlives: bool
    ) -> Result:
        """The result of a job that left its queue: the one that it wrote, else one made from the queue's last state.

        `stopped_by` is the signal that stopped the launcher, and `outlives` whether the job survives that.
        """
        if stopped_by and not outlives and self.read_result() is None:
            return outcome.stopped(self.folder, stopped_by)
        return scheduler_endings.end(self.folder, self.job.config, self.ticket.job_id, state)

    def not_ours(self) -> str:
        """Why the job is not this user's to cancel; empty if it is."""
        try:
            if self.ticket.kind != this_machine.KIND:
                ticket.check_own(self.folder, self.ticket)
        except ConfigError as refusal:
            return str(refusal)
        return ""


def progress_of(job: Job, console: Console, alone: bool) -> RunProgress | JobLines:
    """The display of a job: a progress bar if it is `alone`, else lines."""
    waiting = Waiting(job.config)
    if not alone:
        return JobLines(console, job.name, waiting)
    return RunProgress(console, job.name, job.config.targets(), waiting, job.checkpoint).start()
