"""Follows the jobs of a queue: submits while there is room, mirrors runs that began, and says how each ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from rich.console import Console

from conf.schema import ConfigError
from tracking.base.event_stream import EventStream
from tracking.jobs.follow import Uploads
from tracking.jobs.node import Ticket, scheduler_endings, signals, slurm, ticket
from tracking.jobs.plan import Job
from tracking.jobs.queues import detaching, job_events, unmet_nodes
from tracking.jobs.queues.followed_job import Followed, progress_of
from tracking.jobs.queues.job_messages import JobMessages
from tracking.jobs.queues.queue import Queue
from tracking.jobs.watch import Alerts
from tracking.record import Failure, Result, attempts, failures, journal, run_folder, run_lock

POLL_SEC = 0.5  # interval between two reads of the folders of jobs elsewhere


class Following:
    """Follows the jobs of one launcher. `own_folder(job)` makes and locks a job's folder before it is submitted.

    `started` is when the launcher's command began, in monotonic seconds.
    """

    def __init__(
        self, queue: Queue, uploads: Uploads, console: Console, own_folder: Callable[[Job], run_lock.Owner],
        num_jobs: int, started: float, events: EventStream | None = None,
    ) -> None:  # fmt: skip
        self._events = events or EventStream()
        self._queue = queue
        self._uploads = uploads
        self._console = console
        self._own_folder = own_folder
        self._num_jobs = num_jobs
        self._started = started
        self._jobs: list[Followed] = []
        self._num_tried = 0
        self._refused = ""  # why the queue did not take the last job
        self._submit_at = float("-inf")  # monotonic seconds; when to try again to submit it
        self._stopped_by: signals.Interrupted | None = None
        self._cancel_failed = ""  # why the queue could not cancel the jobs
        self._messages = JobMessages(console, num_jobs, 0 if queue.outlives else queue.at_once)
        self._asked_at = float("-inf")
        self._alerts = Alerts(console)

    @property
    def running(self) -> list[Followed]:
        return [followed for followed in self._jobs if followed.job.result is None]

    def take_up(self, job: Job, job_ticket: Ticket) -> None:
        """Follow a job that was submitted before."""
        self._jobs.append(self._followed(job, job_ticket, time.monotonic(), 0))

    def submit(self, job: Job, after: str = "") -> bool:
        """Submit a job, which starts once the job with id `after` has ended.

        Returns False if the queue does not take it now. A refusal becomes the job's result.
        """
        if job.owner is None:
            self._messages.begins(job)
        # The first jobs began with the user's command, later ones when they got their turn.
        began = time.monotonic() if self._num_tried >= self._queue.at_once else self._started
        self._num_tried += 1
        try:
            owner = job.owner = job.owner or self._own_folder(job)
            job.folder = owner.folder
            # A resumed run's journal begins with earlier attempts, which were shown then.
            journal_bytes = (job.folder / run_folder.JOURNAL).stat().st_size if job.checkpoint else 0
            with signals.undisturbed():  # A submitted job must be followed.
                job_ticket = self._queue.submit(owner, job.config, job.name, began, after)
                self._jobs.append(self._followed(job, job_ticket, began, journal_bytes))
                job.let_go()
        except slurm.Away as error:
            self._messages.trouble("submit", f"Slurm does not take {job.name} now: {error}; trying again")
            self._refused, self._submit_at = str(error), time.monotonic() + self._queue.poll_sec
            return False
        except ConfigError as error:
            if job.owner is None:  # another process took its folder meanwhile
                raise
            self._refuse(job, Failure("bad_input", str(error)))
            return True
        except OSError as error:  # the disk is full: it may have room again for the next job
            self._refuse(job, failures.of_launcher(error))
            return True
        self._messages.trouble("submit")
        self._messages.submitted(job, job_ticket)
        job_events.started(self._events, job)
        return True

    def _refuse(self, job: Job, failure: Failure) -> None:
        """End a job that could not be submitted."""
        job.end_unsubmitted(failure)
        job.result = job.result or Result("failed", failure=failure)
        job_events.ended(self._events, job)
        self._alerts.ended(job)
        if job.folder is not None:
            self._uploads.start(job.folder)
            self._uploads.ended(job.folder)
        self._messages.ended(job, None)

    def follow(self, todo: list[Job], more: Callable[[], list[Job]] | None = None) -> None:
        """Submit `todo`, then `more`, while the queue has room, and follow all to their ends. Raises Interrupted."""
        while True:
            if more and not todo and len(self.running) < self._queue.at_once:
                todo += more()
            if not todo and not self.running:
                return
            while todo and self._has_room(todo[0]) and self.submit(todo[0]):
                todo.pop(0)
            self._read_all(expecting=bool(todo or more))
            if self.running or todo:
                time.sleep(POLL_SEC if self._queue.outlives else self._queue.poll_sec)

    def _has_room(self, job: Job) -> bool:
        waits = len(self.running) >= self._queue.at_once or time.monotonic() < self._submit_at
        return not waits and self._queue.has_room(job.config)

    def detach(self, todo: Sequence[Job]) -> None:
        """Submit the remaining jobs. Without a follower, each waits for the one `at_once` places before it."""
        at_once = self._queue.at_once
        submitted = [followed.job for followed in self._jobs]
        for job in todo:
            if any(job is other for other in submitted):  # A signal came while it was submitted.
                continue
            predecessor = self._jobs[-at_once].ticket.job_id if len(self.running) >= at_once else ""
            if not self.submit(job, predecessor):
                raise ConfigError(detaching.not_submitted(job, self._refused))

    def cancel(self, error: signals.Interrupted) -> None:
        """Cancel queued and running jobs, and wait for their ends; a further signal ends them without grace.

        Jobs that outlive this process are left after that, still as `running`.
        """
        for followed in self.running:
            if refusal := followed.not_ours():  # The job keeps running without this follower.
                followed.job.result = Result("failed", failure=Failure("error", refusal))
                self._console.print(f"note: {refusal}", soft_wrap=True)
        self._stopped_by = error
        self._ask_to_cancel()
        self._asked_at = float("-inf")
        with suppress(signals.Interrupted):
            if not signals.hurried():
                signals.raise_on_signals()
                self.follow([])
        signals.ignore_further()
        if self.running:
            self._ask_to_cancel()
            if not self._queue.outlives:
                self.follow([])

    def _ask_to_cancel(self) -> None:
        """Ask the queue to cancel the running jobs; if that fails, it is asked again with each query."""
        assert self._stopped_by
        self._cancel_failed = ""
        try:
            self._queue.cancel([followed.ticket for followed in self.running], self._stopped_by.signum)
        except (slurm.Away, ConfigError) as error:
            self._cancel_failed = f"the jobs could not be cancelled: {error}; trying again"
        self._messages.trouble("cancel", self._cancel_failed)

    def close(self, interrupted: bool = False) -> None:
        """End the drawing, and wait for commands of alerts; kill these if `interrupted`."""
        for followed in self._jobs:
            followed.progress.close()
        self._alerts.close(interrupted)

    def _followed(self, job: Job, job_ticket: Ticket, began: float, journal_bytes: int) -> Followed:
        alone = self._num_jobs == 1 or (self._queue.at_once == 1 and not self._queue.outlives)
        return Followed(job, job_ticket, progress_of(job, self._console, alone), began, journal_bytes)

    def _read_all(self, expecting: bool) -> None:
        """Read each running job's folder, and ask the queue now and then. `expecting`: more jobs will be submitted."""
        for followed in self.running:
            self._read(followed, expecting)
        if self.running and time.monotonic() - self._asked_at >= self._queue.poll_sec:
            self._ask_queue()

    def _read(self, followed: Followed, expecting: bool) -> None:
        """Read what is new in the job's folder, and conclude the job if its run has ended."""
        with suppress(OSError, ValueError):  # the file system may be away for a while
            self._show_new_records(followed)
            followed.progress.wait()
            result = run_folder.read_result(followed.folder)
            if result is not None and expecting:
                self._queue.expect()
            final = result is not None and (result.status == "finished" or not followed.ticket.max_requeues)
            if result is not None and final and ticket.has_ended(followed.folder):
                self._conclude(followed, result)

    def _show_new_records(self, followed: Followed) -> None:
        """Show the new records of the job's journal. Raises OSError."""
        path = followed.folder / run_folder.JOURNAL
        if followed.offset == 0 or path.stat().st_size > followed.offset:
            for record, offset in journal.read(path, followed.offset):
                followed.offset = offset
                self._show(followed, record)

    def _show(self, followed: Followed, record: journal.Record) -> None:
        if record.kind == "event" and record.key == "init_start" and not followed.mirrored:
            followed.mirrored = True
            if followed.job.config.cluster.mirror == "launcher":
                self._uploads.start(followed.folder)
        if record.kind == "event" and record.key == attempts.RESUME:
            self._messages.resumed(followed.job, record)
        job_events.recorded(self._events, followed.job, record)
        self._alerts.see(followed.job, record)
        followed.progress.update(record)

    def _ask_queue(self) -> None:
        """Ask the queue about all jobs together."""
        running = self.running
        try:
            states = self._queue.states([followed.ticket for followed in running])
        except slurm.Away as error:
            self._messages.trouble("ask", f"Slurm does not answer: {error}; asking again; the jobs keep running")
            return
        finally:
            self._asked_at = time.monotonic()
        self._messages.trouble("ask")
        for followed in running:
            state = states.get(followed.ticket.asked)
            if state is not None and state.active:
                followed.gone_at = None
                self._messages.state(followed.job, state)
                continue
            followed.gone_at = followed.gone_at or time.monotonic()
            if scheduler_endings.requeued(followed.folder, followed.ticket, state):
                followed.gone_at = None
                continue
            has_settled = time.monotonic() - followed.gone_at > self._queue.settling_sec
            if has_settled or followed.read_result():
                self._conclude(followed, followed.result_of_gone(state, self._stopped_by, self._queue.outlives))
        if self._cancel_failed and self.running:
            self._ask_to_cancel()

    def _conclude(self, followed: Followed, result: Result) -> None:
        """Give a job its result, and report it to the console, the events, the alerts and the mirror."""
        job = followed.job
        with suppress(OSError, ValueError):
            self._show_new_records(followed)  # records written meanwhile
        followed.progress.close()
        job.result = result
        job_events.ended(self._events, job)
        self._alerts.ended(job)
        if job.config.cluster.mirror == "launcher":
            if not followed.mirrored and not unmet_nodes.is_unmet(job):
                self._uploads.start(followed.folder)
            self._uploads.ended(followed.folder)
        else:
            self._uploads.elsewhere.add(followed.folder)
        if job.config.log_model and job.result.failure:
            self._console.print(f"{job.name}: no model for MLflow, since the run has not finished", soft_wrap=True)
        self._messages.ended(job, time.monotonic() - followed.began)
