"""A job: the configuration of one run of a launch, its newest folder and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conf.schema import RunConfig
from tracking.jobs.node import outcome
from tracking.jobs.plan.run_setup import run_name
from tracking.record import Checkpoint, Failure, Result, failures, run_lock


@dataclass
class Job:
    """One job of a sweep: its configuration, and its newest folder and result (None before the first attempt).

    With a `checkpoint`, the job continues in the checkpoint's folder. Without one it starts in a new folder.
    """

    config: RunConfig
    overrides: list[str]
    folder: Path | None = None
    result: Result | None = None
    checkpoint: Checkpoint | None = None
    owner: run_lock.Owner | None = None  # this process's lock of the folder, until another process takes the job
    varied: str = ""  # settings in its name that other runs' names leave out
    lost: list[Path] = field(default_factory=list)  # folders of its lost runs
    given_up: bool = False  # lost so often that its search blames the setting

    def start_anew(self) -> None:
        """Make the job run once more, in another folder."""
        if self.folder is not None:
            self.lost.append(self.folder)
        self.folder, self.result = None, None

    def let_go(self) -> None:
        """Release this process's lock of the folder."""
        assert self.owner
        self.owner.let_go()
        self.owner = None

    def end_unsubmitted(self, failure: Failure) -> None:
        """End the job's run, if it has a folder and was not submitted: only this process knows about it."""
        if self.owner is not None:
            self.result = outcome.end(self.owner.folder, failure)
            self.let_go()

    @property
    def name(self) -> str:
        return run_name(self.config, self.varied)

    @property
    def finished(self) -> bool:
        return self.result is not None and self.result.status == "finished"

    @property
    def settled(self) -> bool:
        """Whether the job needs no further run: it finished, or its search accepts how it ended.

        A search times whole runs, so one that somebody resumed by hand is repeated.
        """
        failure = self.result.failure if self.result else None
        if self.result is not None and self.finished and self.config.search.phase:
            return not self.result.resumes
        if self.finished or failure is None or not self.config.search.phase:
            return self.finished
        return self.given_up or failure.kind in failures.REPEATABLE_FAILURES


def exit_code(jobs: Sequence[Job]) -> int:
    """The exit code: 0 if all jobs are settled, 2 if every job failed for bad input, else 1."""
    kinds = [job.result.failure.kind if job.result and job.result.failure else "" for job in jobs]
    if all(kind == "bad_input" for kind in kinds):
        return 2
    return 0 if all(job.settled for job in jobs) and any(job.finished for job in jobs) else 1
