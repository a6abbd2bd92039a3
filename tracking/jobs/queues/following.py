"""Follows jobs that a scheduler runs: submits while there is room, mirrors what has begun, and says how each ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from conf.schema import ConfigError
from tracking.jobs.follow import Uploads
from tracking.jobs.follow import console as shown
from tracking.jobs.node import Ticket, endings, signals, slurm, supervision, ticket
from tracking.jobs.plan import Job, sweep_summary
from tracking.jobs.queues.queue import Queue
from tracking.record import Failure, Result, attempts, headline, journal, run_folder, run_lock

POLL_SEC = 0.5  # how often folders are looked at
SETTLING_SEC = 10.0  # how long a shared file system may take to show what a job that has ended wrote last


@dataclass
class Followed:
    """A job that was submitted."""

    job: Job
    ticket: Ticket
    state: str = ""  # what was last said of it
    offset: int = 0  # bytes of its journal that were seen
    mirrored: bool = False
    gone_at: float | None = None  # monotonic seconds, at which the scheduler had it no more

    @property
    def folder(self) -> Path:
        assert self.job.folder is not None
        return self.job.folder


def end_unsubmitted(jobs: Sequence[Job], failure: Failure) -> None:
    """End the runs of jobs that have a folder, and that nobody but this process knows of."""
    for job in jobs:
        if job.owner is not None:
            job.result = supervision.end(job.owner.folder, failure)
            let_go(job)


def let_go(job: Job) -> None:
    assert job.owner
    job.owner.let_go()
    job.owner = None


class Following:
    """The jobs of one launcher. `own_folder(job)` prepares and owns the folder of one that is to be submitted."""

    def __init__(
        self,
        queue: Queue,
        uploads: Uploads,
        console: Console,
        own_folder: Callable[[Job], run_lock.Owner],
        num_jobs: int,
    ) -> None:
        self._queue = queue
        self._uploads = uploads
        self._console = console
        self._own_folder = own_folder
        self._num_jobs = num_jobs
        self._jobs: list[Followed] = []
        self._asked_at = float("-inf")
        self._trouble = ""
        self._progress: shown.RunProgress | None = None

    @property
    def running(self) -> list[Followed]:
        return [followed for followed in self._jobs if followed.job.result is None]

    def take_up(self, job: Job, made: Ticket) -> None:
        """Follow a job that somebody has submitted."""
        self._jobs.append(Followed(job, made))

    def submit(self, job: Job, after: str = "") -> bool:
        """Submit a job; False where Slurm does not answer now. What it refuses is the job's result."""
        owner = job.owner = job.owner or self._own_folder(job)
        job.folder = owner.folder
        try:
            with signals.undisturbed():  # What was submitted is followed.
                made = self._queue.submit(owner, job.config, job.name, after)
                self._jobs.append(Followed(job, made))
                let_go(job)
        except slurm.Away as error:
            self._say(f"Slurm does not answer: {error}; it is asked again")
            return False
        except ConfigError as error:
            end_unsubmitted([job], Failure("bad_input", str(error)))
            self._console.print(f"  {job.name}: {error}", soft_wrap=True)
            return True
        self._console.print(f"  {job.name}: job {made.job_id}", soft_wrap=True)
        return True

    def follow(self, todo: list[Job], at_once: int) -> None:
        """Submit `todo`, up to `at_once` together, and follow all to their ends. Raises Interrupted."""
        with shown.RunProgress(self._console, "", {}) if self._num_jobs > 1 else self._bar(todo) as progress:
            self._progress = progress if self._num_jobs == 1 else None
            while todo or self.running:
                while todo and len(self.running) < at_once and self.submit(todo[0]):
                    todo.pop(0)
                self._look()
                time.sleep(POLL_SEC if self._queue.outlives else self._queue.poll_sec)

    def detach(self, todo: Sequence[Job], at_once: int) -> None:
        """Submit the rest so that no more than `at_once` run together without anybody who follows."""
        for job in todo:
            before = self._jobs[-at_once].ticket.job_id if len(self.running) >= at_once else ""
            if not self.submit(job, before):
                raise ConfigError(f"{job.name} and those behind it are not submitted: Slurm does not answer")

    def cancel(self, error: signals.Interrupted) -> None:
        """Cancel what is queued or runs, and wait for its end."""
        own = []
        for followed in self.running:
            try:
                ticket.check_own(followed.folder, followed.ticket)
                own.append(followed.ticket)
            except ConfigError as refusal:  # It goes on, without this follower.
                followed.job.result = Result("failed", failure=Failure("error", str(refusal)))
                self._console.print(f"note: {refusal}", soft_wrap=True)
        with suppress(slurm.Away, ConfigError):
            self._queue.cancel(own)
        if not self._queue.outlives:  # Their processes are gone, some before they could say why.
            for followed in self.running:
                if run_folder.read_result(followed.folder) is None:
                    supervision.stopped(followed.folder, error)
        self._asked_at = float("-inf")
        self.follow([], 1)

    def _bar(self, todo: Sequence[Job]) -> shown.RunProgress:
        job = todo[0] if todo else self._jobs[0].job
        return shown.RunProgress(self._console, job.name, job.config.targets())

    def _look(self) -> None:
        for followed in self.running:
            self._read(followed)
        waited = time.monotonic() - self._asked_at
        if self.running and waited >= self._queue.poll_sec:
            self._ask()

    def _read(self, followed: Followed) -> None:
        """See what is new in its folder, and whether it has ended by its own word."""
        with suppress(OSError, ValueError):  # a file system that is away for a while
            path = followed.folder / run_folder.JOURNAL
            if followed.offset == 0 or path.stat().st_size > followed.offset:
                for record, offset in journal.read(path, followed.offset):
                    followed.offset = offset
                    self._show(followed, record)
            result = run_folder.read_result(followed.folder)
            final = result is not None and (result.status == "finished" or not followed.ticket.max_requeues)
            if final and ticket.has_ended(followed.folder):
                self._ended(followed)

    def _show(self, followed: Followed, record: journal.Record) -> None:
        if record.kind == "event" and record.key == "init_start" and not followed.mirrored:
            followed.mirrored = True
            if followed.job.config.cluster.mirror == "launcher":
                self._uploads.start(followed.folder)
        if record.kind == "event" and record.key == attempts.RESUME:
            epoch = record.values["epoch_num"]
            words = f"goes on after epoch {epoch}" if epoch else "begins anew, since it has no checkpoint"
            self._console.print(f"  {followed.job.name}: {words}; epoch {epoch + 1} from its start", soft_wrap=True)
        if self._progress is not None:
            self._progress.update(record)
        elif words := shown.remark(record):
            self._console.print(f"  {followed.job.name}: {words}", soft_wrap=True)

    def _ask(self) -> None:
        """Ask the scheduler about all jobs together."""
        running = self.running
        try:
            states = self._queue.states([followed.ticket for followed in running])
        except slurm.Away as error:
            self._say(f"Slurm does not answer: {error}; it is asked again, and jobs go on meanwhile")
            return
        finally:
            self._asked_at = time.monotonic()
        self._trouble = ""
        for followed in running:
            state = states.get(followed.ticket.job_id)
            if state is not None and state.active:
                followed.gone_at = None
                if str(state) != followed.state:
                    followed.state = str(state)
                    self._console.print(f"  {followed.job.name}: {state}", soft_wrap=True)
                continue
            followed.gone_at = followed.gone_at or time.monotonic()
            if endings.requeued(followed.folder, followed.ticket, state):
                followed.gone_at = None
            elif run_folder.read_result(followed.folder) or time.monotonic() - followed.gone_at > SETTLING_SEC:
                endings.end(followed.folder, followed.job.config, followed.ticket.job_id, state)
                self._ended(followed)

    def _ended(self, followed: Followed) -> None:
        job = followed.job
        job.result = run_folder.read_result(followed.folder)
        assert job.result is not None
        if job.config.cluster.mirror == "launcher":
            if not followed.mirrored:
                self._uploads.start(followed.folder)
            self._uploads.ended(followed.folder)
        else:
            self._uploads.elsewhere.add(followed.folder)
        failure = job.result.failure
        came_to = f"{sweep_summary.status(job)}: {failure.message}" if failure else headline(job.result) or "finished"
        if self._num_jobs > 1:
            left = self._num_jobs - sum(other.job.result is not None for other in self._jobs)
            self._console.print(f"  {job.name}: {came_to}; {left} of {self._num_jobs} left", soft_wrap=True)

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._console.print(f"note: {trouble}", soft_wrap=True)
