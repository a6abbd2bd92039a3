"""Gives jobs to a queue, follows them, and shows their results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base.console import make_console
from tracking.base.event_stream import EventStream
from tracking.base.installation import LAUNCH
from tracking.base.number_text import counted
from tracking.jobs.follow import Uploads
from tracking.jobs.handover import SupervisorProcess
from tracking.jobs.node import Interrupted, join, outcome, preparing, signals, ticket
from tracking.jobs.plan import Job, exit_code, own_folder, resume, sweep
from tracking.jobs.queues import dry_run, job_events, sweep_end, unmet_nodes
from tracking.jobs.queues.detaching import Detached, follow_command, wants_cancel
from tracking.jobs.queues.following import Following
from tracking.jobs.queues.queue_kinds import queue_of
from tracking.jobs.search import SearchJobs
from tracking.machine.stacks import Judged, RefusedStacks, Verdict, by_name, verdict_table
from tracking.record import Failure, Result, run_folder, run_lock
from tracking.request import refusal


class Launcher:
    """Runs jobs and returns the exit code of launch.py.

    `gpus` are the visible GPUs. `started` is when the user's command began, in monotonic seconds. `supervisor` was
    started in advance, and takes the first run on this machine.
    """

    def __init__(
        self, config: RunConfig, gpus: Sequence[Any], started: float, supervisor: SupervisorProcess | None = None,
        events: EventStream | None = None,
    ) -> None:  # fmt: skip
        self._events = events or EventStream()
        self._log_model, self._register = config.log_model, config.register_model is not None
        self._gpus = gpus
        self._started = started
        self._on_cluster = config.cluster.kind != "none"  # a scheduler runs the jobs, and keeps them running
        self._only_follows = False  # True for jobs that another launcher submitted
        self._queue = queue_of(config, supervisor)
        self._console = make_console()
        self._uploads = Uploads(config.tracking, self._console)
        self._refused = RefusedStacks(config, gpus)
        signals.raise_on_signals()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *error: object) -> None:
        self._queue.close()

    def check_jobs(self, configs: Sequence[RunConfig], verdicts: Mapping[Judged, Verdict]) -> None:
        """Raise ConfigError if a job cannot run and the sweep does not skip such jobs.

        On a cluster, each node checks the stack itself.
        """
        if len({config.cluster.kind for config in configs}) > 1:
            raise ConfigError("cluster: all jobs of a sweep run on one kind of cluster. Next: give one cluster")
        self._refused.judged(verdicts)
        if configs:
            self._queue.check(configs)

    def check_server(self) -> None:
        """Print a note if the server does not answer. Raises ConfigError if it refuses the user."""
        self._uploads.check_server(self._log_model, self._register)

    def make_stacks(self, configs: Sequence[RunConfig]) -> None:
        """Make the jobs' environments, outside every measured time. Raises ConfigError.

        On a cluster, all nodes share the cache of environments, and each node fetches its images.
        """
        began = time.monotonic()
        here = [config for config in configs if config.cluster.kind == "none" or config.stack.kind != "container"]
        with preparing(here):
            self._refused.make(here, self._say)
        self._started += time.monotonic() - began

    def dry_run(self, jobs: Sequence[Job], verdicts: Mapping[Judged, Verdict], search: SearchJobs | None) -> int:
        """Print what would be run. Raises ConfigError as `check_jobs` does."""
        if verdicts:
            self._console.print(verdict_table(by_name(verdicts.values())))
        self.check_jobs([job.config for job in jobs], verdicts)
        dry_run.show(jobs, self._refused, self._gpus, self._console, search)
        self._uploads.say_server(self._log_model, self._register)
        self._say(f"{len(jobs)} checked; nothing was {'submitted' if self._on_cluster else 'trained'} (dry_run=true)")
        return 0

    def run_single(self, job: Job) -> int:
        """Run one job. Raises ConfigError."""
        root = Path(job.config.runs_dir).resolve()
        try:
            job.owner = own_folder(job, root, None, self._uploads.uri, self._say)
        except OSError as error:
            raise ConfigError(f"runs_dir={root}: {error}. Next: give a folder that you can write to") from error
        except Interrupted:
            return 1  # stopped before there was a run to show
        job.folder = job.owner.folder
        return self._follow_single(job, job.folder)

    def run_node(self, config: RunConfig) -> int:
        """Train this non-head node's part. The head node writes the run, mirrors it and prints its table."""
        try:
            failure = join(config, list(self._gpus), self._say)
        except Interrupted as error:
            self._say(f"stopped by {error}")
            return 1
        self._say(f"failed: {failure.message}" if failure else "this node's part has ended")
        return 1 if failure else 0

    def run_sweep(
        self, jobs: list[Job], argv: Sequence[str], folder: Path | None = None, search: SearchJobs | None = None
    ) -> int:
        """Run the remaining jobs in a new sweep, in the sweep of `folder`, or in a search. Raises ConfigError."""
        jobs = search.jobs if search else [job for job in jobs if not self._refused.is_idle(job.config)]
        root = folder.parent if folder else Path(jobs[0].config.runs_dir)
        with ExitStack() as held:
            try:
                if folder is None:
                    folder = held.enter_context(sweep.create(jobs, argv, self._uploads.uri)).folder
                else:
                    held.enter_context(run_lock.hold(folder))
                    resume.settle(folder, jobs, self._on_cluster, self._console)
                    sweep.reopen(folder)
            except run_lock.Running as error:
                raise ConfigError(f"{folder}: {error}. Next: wait for it, or stop it") from error
            except OSError as error:
                raise ConfigError(f"runs_dir={root}: {error}. Next: give a folder that you can write to") from error
            self._uploads.take_up([path for path in run_folder.run_folders(folder) if path != folder])
            self._uploads.look_back(folder.parent)
            self._uploads.mark(folder)
            self._uploads.start(folder)
            try:
                self._run_jobs(jobs, folder, search)
            except Detached as left:
                return left.code
            self._finish_sweep(jobs, folder, search)
        return exit_code(jobs)

    def follow(self, folder: Path) -> int:
        """Follow a sweep or a run that was submitted before. Raises ConfigError if another process follows it."""
        self._only_follows = True
        if run_folder.read_info(folder).kind != "sweep":
            config = run_folder.read_config(folder)
            config.detach = False  # It may have been submitted with detach.
            return self._follow_single(Job(config, [], folder), folder)  # also mirrors a run that has ended
        jobs = sweep.read(folder)
        for job in jobs:
            job.config.detach = False  # They may have been submitted with detach.
        sweep.name_jobs(jobs)
        return self.run_sweep(jobs, [], folder)

    def _finish_sweep(self, jobs: list[Job], folder: Path, search: SearchJobs | None) -> None:
        sweep_end.finish(self._console, self._events, jobs, folder, search)
        folders = [folder, *(job.folder for job in jobs if job.folder is not None)]
        self._uploads.wait(folders)
        self._uploads.print_sweep(folder, folders[1:])
        self._uploads.print_report(folder, jobs[0].config)

    def _follow_single(self, job: Job, folder: Path) -> int:
        try:
            with run_lock.hold(folder, run_lock.FOLLOWER):
                if not self._only_follows:
                    self._uploads.look_back(folder.parent)
                self._uploads.mark(folder)
                self._schedule([job], folder)
        except run_lock.Running as error:
            raise ConfigError(f"{folder}: has a follower already ({error}). Next: watch it there") from error
        except Detached as left:
            return left.code
        except Interrupted as error:
            job.end_unsubmitted(failure := outcome.stopped_by(error))
            job.result = job.result or Result("killed", failure=failure)
        assert job.result is not None
        if unmet_nodes.is_unmet(job):
            return unmet_nodes.give_up(job, folder)
        sweep_end.finish_run(self._console, job, folder)
        self._uploads.wait([folder])
        self._uploads.print_link(folder)
        return exit_code([job])

    def _run_jobs(self, jobs: Sequence[Job], folder: Path, search: SearchJobs | None) -> None:
        requested = search.to_start() if search else jobs
        todo = [job for job in requested if not job.settled and not (self._only_follows and job.result)]
        for job in [job for job in todo if job.result]:
            job.start_anew()
        left = f"{len(todo)} of {counted(len(jobs), 'job')} {'left' if self._only_follows else 'to run'}"
        words = search.begins() if search else left
        self._console.print(f"sweep {folder.name}: {words}", style="bold", soft_wrap=True)
        if not todo and not search:
            return
        try:
            self._schedule(todo, folder, search)
        except Interrupted:
            self._console.print(f"continue with: {LAUNCH} {refusal.resuming(folder)}", soft_wrap=True)

    def _schedule(self, jobs: Sequence[Job], folder: Path, search: SearchJobs | None = None) -> None:
        """Submit and follow jobs to their ends. Raises Detached, Interrupted."""
        parent = folder if run_folder.read_info(folder).kind == "sweep" else None
        all_jobs = search.jobs if search else jobs  # a search adds jobs while it is followed
        following = Following(
            self._queue, self._uploads, self._console, lambda job: self._owned_folder(job, folder, parent),
            0 if search else len(jobs), self._started, self._events,
        )  # fmt: skip
        todo = []
        for job in jobs:
            earlier_ticket = ticket.read(job.folder) if job.folder and not job.owner else None
            if earlier_ticket:  # another launcher submitted it; it may have ended meanwhile
                following.take_up(job, earlier_ticket)
            else:
                todo.append(job)
        try:
            if jobs and jobs[0].config.detach:
                following.detach(todo)
                raise self._detached(folder, search)
            following.follow(todo, (lambda: job_events.next_of(self._events, search, folder)) if search else None)
        except Interrupted as error:
            following.close(interrupted=True)  # The progress display must not cover the question.
            if self._queue.outlives and not wants_cancel(error):
                following.detach(todo)
                raise self._detached(folder, search) from error
            self._say(f"stopped by {error}" + (": cancelling the jobs" if self._on_cluster else ""))
            for job in all_jobs:
                job.end_unsubmitted(outcome.stopped_by(error))
            following.cancel(error)
            if left := [followed.ticket.job_id for followed in following.running]:
                self._say(f"stopped again before these jobs had ended: {', '.join(left)}")
                raise self._detached(folder, search, code=1) from error
            raise
        finally:
            following.close()
            for job in all_jobs:
                job.end_unsubmitted(Failure("error", "the launcher ended before the job was submitted"))

    def _detached(self, folder: Path, search: SearchJobs | None, code: int = 0) -> Detached:
        # A follower makes no new runs of a search.
        again = f"{LAUNCH} {refusal.resuming(folder)}" if search else follow_command(folder)
        left = "the jobs may still run" if code else "the jobs keep running"
        self._say(f"detached; {left}. {'Go on searching' if search else 'Follow them'} with: {again}")
        return Detached(code)

    def _owned_folder(self, job: Job, root: Path, parent: Path | None) -> run_lock.Owner:
        """Make or take the job's folder, and lock it for the job. Raises ConfigError if its stack cannot run here."""
        uri = self._uploads.uri
        owner = run_lock.take(job.folder) if job.folder else own_folder(job, root, parent, uri, self._say)
        job.owner, job.folder = owner, owner.folder
        self._refused.check(job.config, owner.folder)
        return owner

    def _say(self, words: str) -> None:
        self._console.print(words, soft_wrap=True)
