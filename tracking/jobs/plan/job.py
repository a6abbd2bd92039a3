"""A job: what one run of a launch is asked to do, and what has become of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conf.schema import RunConfig
from tracking.jobs.plan.run_setup import run_name
from tracking.record import Checkpoint, Result, failures, run_lock


@dataclass
class Job:
    """One job of a sweep: what it runs, and its newest folder and result, if there are any.

    With a `checkpoint`, it goes on in the folder of that, rather than from the start in a new one.
    """

    config: RunConfig
    overrides: list[str]
    folder: Path | None = None
    result: Result | None = None
    checkpoint: Checkpoint | None = None
    owner: run_lock.Owner | None = None  # this process's hold of its folder, until another has the job
    varied: str = ""  # what its name tells beside what every run's name does
    lost: list[Path] = field(default_factory=list)  # folders of its runs that were lost
    given_up: bool = False  # lost so often that its search takes that for an end of the setting's own

    def start_anew(self) -> None:
        """Have it run once more, in another folder."""
        if self.folder is not None:
            self.lost.append(self.folder)
        self.folder, self.result = None, None

    @property
    def name(self) -> str:
        return run_name(self.config, self.varied)

    @property
    def finished(self) -> bool:
        return self.result is not None and self.result.status == "finished"

    @property
    def settled(self) -> bool:
        """Whether nothing of it is left to run: it finished, or its search knows enough of how it ended."""
        failure = self.result.failure if self.result else None
        if self.finished or failure is None or not self.config.search.phase:
            return self.finished
        return self.given_up or failure.kind in failures.OWN_ENDS


def exit_code(jobs: Sequence[Job]) -> int:
    """0 = all ran, 1 = one failed, 2 = none could be run as asked."""
    kinds = [job.result.failure.kind if job.result and job.result.failure else "" for job in jobs]
    if all(kind == "bad_input" for kind in kinds):
        return 2
    return 0 if all(job.settled for job in jobs) and any(job.finished for job in jobs) else 1
