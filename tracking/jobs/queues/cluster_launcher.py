"""The launcher whose jobs others run: it makes their folders, submits them, and follows them from outside."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.analysis.statistics import counted
from tracking.base.console import Drawing
from tracking.base.installation import LAUNCH
from tracking.jobs.follow import result_table, tracking_command, unfinished
from tracking.jobs.node import Interrupted, signals, ticket
from tracking.jobs.plan import Job, resume, sweep
from tracking.jobs.queues import batch_script
from tracking.jobs.queues.following import Following, end_unsubmitted
from tracking.jobs.queues.launcher import Launcher, exit_code
from tracking.jobs.queues.queue import Queue, queue_of
from tracking.jobs.trust import ownership
from tracking.machine.stacks import Verdict
from tracking.record import Failure, run_folder, run_lock
from tracking.store import server


class Detached(Exception):
    """Nobody follows the jobs any more, which go on."""


class ClusterLauncher(Launcher):
    """Runs jobs as `cluster=` says, or side by side here. Each node runs `python -m tracking.jobs.node`."""

    _adopts = True
    _follows = False  # whether the jobs were submitted before
    _queue: Queue | None = None

    def check_jobs(self, configs: Sequence[RunConfig], verdicts: Sequence[Verdict]) -> None:
        """Raise ConfigError for what the scheduler would refuse. What a stack needs is looked at on its nodes."""
        if len({config.cluster.kind for config in configs}) > 1:
            raise ConfigError("cluster: the jobs of a sweep are all of one kind; give one cluster")
        super().check_jobs(configs, verdicts)
        if configs:
            self._queue = queue_of(configs[0])
            self._queue.check(configs)

    def make_stacks(self, configs: Sequence[RunConfig]) -> None:
        """Make the environments, in the cache that all nodes share. An image is fetched on each node."""
        super().make_stacks([config for config in configs if config.stack.kind != "container"])

    def dry_run(self, jobs: Sequence[Job], verdicts: Sequence[Verdict] = ()) -> int:
        """Print the script of each job."""
        self.check_jobs([job.config for job in jobs], verdicts)
        if jobs and jobs[0].config.cluster.kind == "none":
            return super().dry_run(jobs, verdicts)
        sweep.name_jobs(jobs)
        for number, job in enumerate(jobs, 1):
            self._console.print(f"job {number} of {len(jobs)}: {' '.join(job.overrides) or 'defaults'}", style="bold")
            folder = Path(job.config.runs_dir).resolve() / job.name
            self._console.print(batch_script.text(job.config, folder, job.name), soft_wrap=True, markup=False)
        self._uploads.say_server(self._log_model, self._register)
        self._console.print(f"{len(jobs)} checked; nothing was submitted (dry_run=true)")
        return 0

    def run_single(self, job: Job) -> int:
        root = Path(job.config.runs_dir).resolve()
        try:
            job.owner = self._owned_folder(job, root, None)
        except OSError as error:
            raise ConfigError(f"runs_dir={root}: {error}; give a folder that you can write to") from error
        job.folder = job.owner.folder
        return self._follow_single(job, job.folder)

    def run_sweep(self, jobs: list[Job], argv: Sequence[str], folder: Path | None = None) -> int:
        try:
            return super().run_sweep(jobs, argv, folder)
        except Detached:
            return 0

    def follow(self, folder: Path) -> int:
        """Follow a sweep or a run that was submitted before. Raises ConfigError where somebody else does."""
        self._follows = True
        if run_folder.read_info(folder).kind != "sweep":
            config = run_folder.read_config(folder)
            config.detach = False  # It was submitted so.
            return self._follow_single(Job(config, [], folder), folder)  # One that has ended is mirrored, too.
        jobs = sweep.read(folder)
        for job in jobs:
            job.config.detach = False  # They were submitted so.
        sweep.name_jobs(jobs)
        return self.run_sweep(jobs, [], folder)

    def _follow_single(self, job: Job, folder: Path) -> int:
        try:
            with run_lock.hold(folder, run_lock.FOLLOWER):
                if job.owner:
                    self._look_back(folder.parent)
                self._mark(folder)
                self._schedule([job], 1, folder)
        except run_lock.Running as error:
            raise ConfigError(f"{folder}: {error}; it is followed already") from error
        except Detached:
            return 0
        except Interrupted as error:
            end_unsubmitted([job], Failure(f"signal:{error.signum}", f"stopped by {error}"))
        assert job.result is not None
        with Drawing(self._console, "the run's table is not shown"):
            self._console.print(result_table.run_table(job.name, folder, job.result))
        self._uploads.wait([folder])
        self._uploads.print_link(folder)
        return exit_code([job])

    def _run_jobs(self, jobs: Sequence[Job], folder: Path) -> None:
        # Who follows runs no job again that has failed meanwhile.
        todo = [job for job in jobs if not job.finished and not (self._follows and job.result)]
        for job in todo:
            if job.result:
                job.folder, job.result = None, None
        left = f"{len(todo)} of {counted(len(jobs), 'job')} {'left' if self._follows else 'to run'}"
        self._console.print(f"sweep {folder.name}: {left}", style="bold")
        if not todo:
            return
        config = jobs[0].config
        at_once = config.sweep.jobs_at_once if config.cluster.kind == "none" else config.cluster.jobs_at_once
        try:
            self._schedule(todo, at_once, folder)
        except Interrupted:
            self._console.print(f"continue with: {LAUNCH} sweep.resume={folder.name}")

    def _schedule(self, jobs: Sequence[Job], at_once: int, folder: Path) -> None:
        """Submit and follow jobs to their ends. Raises Detached, Interrupted."""
        queue = self._queue or queue_of(jobs[0].config)
        parent = folder if run_folder.read_info(folder).kind == "sweep" else None
        following = Following(
            queue, self._uploads, self._console, lambda job: self._submittable(job, folder, parent), len(jobs)
        )
        todo = []
        for job in jobs:
            made = ticket.read(job.folder) if job.folder and not job.owner else None
            if made:  # it may have ended meanwhile
                following.take_up(job, made)
            else:
                todo.append(job)
        try:
            if jobs[0].config.detach:
                following.detach(todo, at_once)
                raise self._detached(folder)
            following.follow(todo, at_once)
        except Interrupted as error:
            if queue.outlives and not wants_cancel(error):
                following.detach(todo, at_once)
                raise self._detached(folder) from error
            self._console.print(f"stopped by {error}: the jobs are cancelled")
            end_unsubmitted(jobs, Failure(f"signal:{error.signum}", f"stopped by {error}"))
            following.cancel(error)
            raise
        finally:
            end_unsubmitted(jobs, Failure("error", "its launcher ended before it was submitted"))

    def _detached(self, folder: Path) -> Detached:
        self._console.print(f"detached; the jobs go on. Follow them with: {follow_command(folder)}", soft_wrap=True)
        return Detached()

    def _submittable(self, job: Job, root: Path, parent: Path | None) -> run_lock.Owner:
        """The folder of a job that is to be submitted: one that was made before, a new one, or of a continued run."""
        return run_lock.take(job.folder) if job.folder else self._owned_folder(job, root, parent)

    def _mark(self, folder: Path) -> None:
        if not self._offline:
            unfinished.mark(folder)


def wants_cancel(error: Interrupted) -> bool:
    """Whether the user who pressed Ctrl-C wants the jobs cancelled; who cannot be asked wants them to go on."""
    signals.raise_on_signals()
    if error.signum != signal.SIGINT or not sys.stdin.isatty():
        return False
    try:
        return input("\nCancel the jobs (c), or detach and let them go on (d)? [d] ").strip().lower().startswith("c")
    except (EOFError, Interrupted):
        return False


def follow_command(folder: Path) -> str:
    return f"{tracking_command()} follow {os.path.relpath(folder)}"


def follow(folder: Path, started: float, trust: bool = False) -> int:
    """Follow what was submitted from `folder`; the exit code of launch.py. Raises ConfigError.

    Jobs of a sweep that wait for room are submitted meanwhile: so the folder is this user's, or has the user's `trust`.
    """
    jobs = sweep.read(folder) if run_folder.read_info(folder).kind == "sweep" else []
    configs = [job.config for job in jobs] or [run_folder.read_config(folder)]
    ownership.check(folder, configs, f"follow {folder}", trust, how="--trust")
    config = configs[0]
    if config.cluster.kind != "slurm":
        raise ConfigError(f"{folder}: was not submitted to a cluster; show it with {tracking_command()} report")
    server.named(None)  # the environment's, which this user means
    config.tracking.uri = resume.own_server(folder)
    return ClusterLauncher(config, [], unused, started).follow(folder)


def unused(config: RunConfig, folder: Path) -> None:
    """No worker is started by who follows."""
    raise AssertionError(folder)
