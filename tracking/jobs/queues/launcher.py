"""Runs jobs one after the other, shows them, and has their folders mirrored to MLflow beside the training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.analysis.statistics import counted
from tracking.base.console import Drawing, make_console
from tracking.base.installation import LAUNCH
from tracking.jobs.follow import Uploads, console, result_table, unfinished
from tracking.jobs.node import Interrupted, Nodes, node_supervision, nodes, reopen, signals, supervision
from tracking.jobs.plan import Job, repair, resume, run_setup, sweep, sweep_summary
from tracking.machine.stacks import RefusedStacks, Verdict, ready, summary, verdict_table
from tracking.record import Checkpoint, Failure, Result, checkpoints, failures, headline, run_folder, run_lock


class Launcher:
    """Runs jobs and returns the exit code of launch.py.

    `worker_command(config, folder)` gives the command (`argv`, `env`) that trains a folder's run; `gpus` are the
    visible ones; `started` is when the user's command began on the monotonic clock.
    """

    _adopts = False  # whether it goes on with jobs that a scheduler has

    def __init__(
        self, config: RunConfig, gpus: Sequence[Any], worker_command: Callable[[RunConfig, Path], Any], started: float
    ) -> None:
        self._offline = config.tracking.offline
        self._log_model, self._register = config.log_model, config.register_model is not None
        self._gpus = gpus
        self._command = worker_command
        self._started = started
        self._console = make_console()
        self._uploads = Uploads(config.tracking, self._console)
        self._refused = RefusedStacks(config, gpus)
        signals.raise_on_signals()

    def dry_run(self, jobs: Sequence[Job], verdicts: Sequence[Verdict] = ()) -> int:
        """Print what would be run. Raises ConfigError as `check_jobs` does."""
        self._console.print(verdict_table(verdicts))
        self.check_jobs([job.config for job in jobs], verdicts)
        sweep.name_jobs(jobs)
        for number, job in enumerate(jobs, 1):
            new = Path(job.config.runs_dir).resolve() / job.name
            self._console.print(f"job {number} of {len(jobs)}: {' '.join(job.overrides) or 'defaults'}", style="bold")
            if why := self._refused.why.get(job.config.stack.name):
                self._console.print(f"  refused: {why}", soft_wrap=True)
            elif ready(job.config.stack):
                command = self._command(job.config, job.checkpoint.folder if job.checkpoint else new)
                self._console.print(f"  {command}", soft_wrap=True)
            else:
                self._console.print(f"  after {summary(job.config.stack)}", soft_wrap=True)
        self._uploads.say_server(self._log_model, self._register)
        self._console.print(f"{len(jobs)} checked; nothing was trained (dry_run=true)")
        return 0

    def make_stacks(self, configs: Sequence[RunConfig]) -> None:
        """Make the environments that the jobs need, outside every measured time. Raises ConfigError."""
        began = time.monotonic()
        self._refused.make(configs, lambda words: self._console.print(words, soft_wrap=True))
        self._started += time.monotonic() - began

    def check_jobs(self, configs: Sequence[RunConfig], verdicts: Sequence[Verdict]) -> None:
        """Raise ConfigError where a job cannot be run here, and the sweep does not ask for the others."""
        self._refused.judged(verdicts)

    def check_server(self) -> None:
        """Say so where the server does not answer. Raises ConfigError where it refuses the user."""
        self._uploads.check_server(self._log_model, self._register)

    def run_single(self, job: Job) -> int:
        root = Path(job.config.runs_dir)
        with ExitStack() as held:
            try:
                others = held.enter_context(nodes.met(job.config)) if job.config.nodes > 1 else None
                self._run(job, root, None, held, others)
            except OSError as error:
                raise ConfigError(f"runs_dir={root}: {error}; give a folder that you can write to") from error
            except Interrupted:
                if job.folder is None:
                    return 1  # stopped before anything was there to show
            assert job.folder is not None
            assert job.result is not None
            with Drawing(self._console, "the run's table is not shown"):
                self._console.print(result_table.run_table(job.name, job.folder, job.result))
            if job.result.failure and checkpoints.in_folder(job.folder):
                self._console.print(f"continue it with: {LAUNCH} resume={os.path.relpath(job.folder)}", soft_wrap=True)
            self._uploads.wait([job.folder])
            self._uploads.print_link(job.folder)
        return exit_code([job])

    def run_node(self, config: RunConfig) -> int:
        """Train the part of a node but the first, which has the run, its mirror and its table."""
        try:
            with nodes.met(config) as others:
                folder = others.folder()
                self._console.print(f"node {others.names[0]} (node_rank={config.node_rank}): {folder}", soft_wrap=True)
                uuids = [gpu.uuid for gpu in config.chosen(self._gpus)]
                failure = node_supervision.run_node(folder, config, self._command(config, folder), uuids, others)
        except Interrupted as error:
            self._console.print(f"stopped by {error}")
            return 1
        self._console.print(f"failed: {failure.message}" if failure else "this node's part has ended", soft_wrap=True)
        return 1 if failure else 0

    def run_sweep(self, jobs: list[Job], argv: Sequence[str], folder: Path | None = None) -> int:
        """Run the jobs that have not finished, in a new sweep or in that of `folder`."""
        jobs = [job for job in jobs if not self._refused.is_idle(job.config)]
        root = folder.parent if folder else Path(jobs[0].config.runs_dir)
        with ExitStack() as held:
            try:
                if folder is None:
                    folder = held.enter_context(sweep.create(jobs, argv, self._uploads.uri)).folder
                else:
                    held.enter_context(run_lock.hold(folder))
                    resume.settle(folder, jobs, self._adopts, self._console)
                    sweep.reopen(folder)
            except run_lock.Running as error:
                raise ConfigError(f"{folder}: {error}; wait for it, or stop it") from error
            except OSError as error:
                raise ConfigError(f"runs_dir={root}: {error}; give a folder that you can write to") from error
            self._uploads.take_up([path for path in run_folder.run_folders(folder) if path != folder])
            self._look_back(folder.parent)
            self._mark(folder)
            self._uploads.start(folder)
            self._run_jobs(jobs, folder)
            with Drawing(self._console, "the sweep's summary is not written"):
                sweep.finish(folder, jobs)
            with Drawing(self._console, "the sweep's table is not shown"):
                self._console.print(sweep_summary.table(folder.name, jobs))
            self._console.print(f"sweep folder: {os.path.relpath(folder)}", soft_wrap=True)
            if (usd := sweep_summary.spent_usd(folder)) is not None:
                self._console.print(f"cost of the sweep: {usd:,.2f} USD, of every job from its start to its end")
            folders = [folder, *(job.folder for job in jobs if job.folder is not None)]
            self._uploads.wait(folders)
            self._uploads.print_sweep(folder, folders[1:])
            self._uploads.print_report(folder, jobs[0].config)
        return exit_code(jobs)

    def _run_jobs(self, jobs: Sequence[Job], folder: Path) -> None:
        todo = [job for job in jobs if not job.finished]
        secs: list[float] = []  # the jobs' durations so far
        self._console.print(f"sweep {folder.name}: {len(todo)} of {counted(len(jobs), 'job')} to run", style="bold")
        try:
            for number, job in enumerate(todo, 1):
                self._console.print(f"job {number} of {len(todo)}: {' '.join(job.overrides)}", soft_wrap=True)
                job.folder, job.result = None, None
                began = time.monotonic()
                try:
                    with ExitStack() as held:
                        self._run(job, folder, folder, held)
                except OSError as error:  # the disk is full: it may have room again for the next job
                    job.result = Result("failed", failure=failures.trouble(error))
                assert job.result is not None
                secs.append(time.monotonic() - began)
                failure = job.result.failure
                came_to = headline(job.result) or "finished"
                came_to += f", beside others ({job.result.neighbours})" if job.result.neighbours else ""
                outcome = f"{sweep_summary.status(job)}: {failure.message}" if failure else came_to
                line = console.job_line(job.name, outcome, len(todo) - number, sum(secs) / number)
                self._console.print(line, soft_wrap=True)
                self._started = time.monotonic()
        except Interrupted as error:
            self._console.print(f"stopped by {error}; continue with: {LAUNCH} sweep.resume={folder.name}")

    def _run(self, job: Job, root: Path, parent: Path | None, held: ExitStack, others: Nodes | None = None) -> None:
        """Run a job in a folder that is `held` from its making or reopening on. Raises OSError where that cannot be."""
        owner = held.enter_context(self._owned_folder(job, root, parent))
        job.folder = folder = owner.folder
        if others:
            others.announce(folder)
        try:
            if parent is None:
                self._look_back(root)
                self._mark(folder)
            self._uploads.start(folder)
            try:
                self._refused.check(job.config, folder)
                command = self._command(job.config, folder)
            except ConfigError as error:  # What the check found when the sweep began is gone.
                job.result = supervision.end(folder, Failure("bad_input", str(error)))
                return
            uuids = [gpu.uuid for gpu in job.config.chosen(self._gpus)]
            with console.RunProgress(self._console, job.name, job.config.targets()) as progress:
                job.result = supervision.run_job(
                    folder, job.config, command, uuids, progress.update, self._started, owner.descriptor, others
                )
        except Interrupted as error:
            job.result = supervision.stopped(folder, error)
            raise
        finally:
            if job.config.log_model and job.result and job.result.failure:
                words = f"{job.name}: no model for MLflow, since the run has not finished"
                self._console.print(words, soft_wrap=True)
            if others:
                others.end(job.result.failure if job.result else None)
                others.wait_for_ends()
            self._uploads.ended(folder)

    def _owned_folder(self, job: Job, root: Path, parent: Path | None) -> run_lock.Owner:
        """The folder of a job that is to run: a new one, or that of the run which it continues. Raises OSError."""
        if job.checkpoint is not None:
            return self._reopen(job.checkpoint)
        owner = run_setup.make_folder(job.name, root, parent)
        with run_setup.removed_unless_whole(owner):
            run_setup.prepare(owner.folder, job.name, job.config, job.overrides, self._uploads.uri, parent)
        return owner

    def _reopen(self, checkpoint: Checkpoint) -> run_lock.Owner:
        folder = checkpoint.folder
        try:
            repair(folder)  # It has a result then, which says what ended it.
            owner = run_lock.take(folder)
        except run_lock.Running as error:  # somebody took it up since it was looked at
            raise ConfigError(f"{folder}: {error}; wait for its end") from error
        damaged = [other.path.name for other in checkpoints.in_folder(folder) if other.epoch_num > checkpoint.epoch_num]
        reopen(folder, checkpoint)
        note = f" ({', '.join(damaged)}: damaged)" if damaged else ""
        self._console.print(f"{folder.name}: continues after epoch {checkpoint.epoch_num}{note}", soft_wrap=True)
        return owner

    def _mark(self, folder: Path) -> None:
        if not self._offline:  # the user knows that those are not uploaded
            unfinished.mark(folder)

    def _look_back(self, root: Path) -> None:
        with suppress(OSError):  # what is wrong with other runs hinders none
            self._uploads.look_back(root)


def exit_code(jobs: Sequence[Job]) -> int:
    """0 = all ran, 1 = one failed, 2 = none could be run as asked."""
    kinds = [job.result.failure.kind if job.result and job.result.failure else "" for job in jobs]
    if all(kind == "bad_input" for kind in kinds):
        return 2
    return 0 if all(job.finished for job in jobs) else 1
