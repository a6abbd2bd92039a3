"""Runs jobs one after the other, shows them, and mirrors their folders to MLflow beside the training."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking import console, job, run_folder, server, spending, sweep
from tracking.job import Interrupted
from tracking.mirror import Mirror
from tracking.server import TrackingRefused, TrackingUnavailable
from tracking.sweep import Job
from tracking.sync import MirrorThread


class Launcher:
    """Runs jobs and returns the exit code of launch.py.

    `worker_command(config, folder)` gives the command (`argv`, `env`) that trains a folder's run; `gpus` are the
    visible ones; `started` is when the user's command began on the monotonic clock.
    """

    def __init__(
        self, config: RunConfig, gpus: Sequence[Any], worker_command: Callable[[RunConfig, Path], Any], started: float
    ) -> None:
        self._config = config
        self._gpus = gpus
        self._command = worker_command
        self._started = started
        self._console = console.make_console()
        self._uri = server.absolute_uri(config.tracking.uri) if config.tracking.uri else server.default_uri()
        self._threads: dict[Path, MirrorThread] = {}
        job.raise_on_signals()

    def dry_run(self, jobs: Sequence[Job]) -> int:
        for number, one in enumerate(jobs, 1):
            command = self._command(one.config, Path(one.config.runs_dir).resolve() / job.run_name(one.config))
            self._console.print(f"job {number} of {len(jobs)}: {' '.join(one.overrides) or 'defaults'}", style="bold")
            self._console.print(f"  {command}", soft_wrap=True)
        self._console.print(f"{len(jobs)} checked; nothing was trained (dry_run=true)")
        return 0

    def run_single(self, one: Job) -> int:
        with suppress(Interrupted):
            self._run(one, Path(one.config.runs_dir), None)
        if one.folder is None or one.result is None:
            return 1  # stopped before anything was there to show
        self._console.print(console.run_table(job.run_name(one.config), one.folder, one.result))
        self._upload([one.folder])
        self._print_link(one.folder)
        return exit_code([one])

    def run_sweep(self, jobs: list[Job], argv: Sequence[str], folder: Path | None = None) -> int:
        """Run the jobs that have not finished, in a new sweep or in that of `folder`."""
        if folder is None:
            folder = sweep.create(jobs, argv, server.strip_credentials(self._uri))
        self._mirror(folder)
        todo = [one for one in jobs if not one.finished]
        self._console.print(f"sweep {folder.name}: {len(todo)} of {len(jobs)} jobs to run", style="bold")
        try:
            for number, one in enumerate(todo, 1):
                self._console.print(f"job {number} of {len(todo)}: {' '.join(one.overrides)}", soft_wrap=True)
                one.result = None
                self._run(one, folder, folder)
                self._started = time.monotonic()
        except Interrupted as error:
            self._console.print(f"stopped by {error}; continue with: launch.py sweep.resume={folder.name}")
        sweep.finish(folder, jobs)
        self._console.print(sweep.table(folder.name, jobs))
        self._console.print(f"sweep folder: {folder}", soft_wrap=True)
        if (usd := spending.spent_usd(folder)) is not None:
            self._console.print(f"cost of the sweep: {usd:,.2f} USD, of every job from its start to its end")
        folders = [folder, *(one.folder for one in jobs if one.folder is not None)]
        self._upload(folders)
        self._print_compare(folder, folders[1:])
        self._print_report(folder, jobs[0].config)
        return exit_code(jobs)

    def _run(self, one: Job, root: Path, parent: Path | None) -> None:
        config = one.config
        one.folder = job.prepare(config, one.overrides, root, server.strip_credentials(self._uri), parent)
        command = self._command(config, one.folder)
        self._mirror(one.folder)
        uuids = [gpu.uuid for gpu in self._gpus[: int(config.gpus)]]
        with console.RunProgress(self._console, job.run_name(config)) as progress:
            try:
                one.result = job.run_job(
                    one.folder, config, command.argv, command.env, uuids, progress.update, self._started
                )
            except Interrupted as error:
                one.result = run_folder.read_result(one.folder) or job.stopped(one.folder, error)
                raise
            finally:
                if one.folder in self._threads:
                    self._threads[one.folder].ended()
        if parent and one.result.failure:
            self._console.print(f"  {sweep.status(one)}: {one.result.failure.message}", soft_wrap=True)

    # ---------------------------------------------------------------------------------------------------- MLflow

    def check_server(self) -> None:
        """Say so where the server does not answer. Raises ConfigError where it refuses the credentials."""
        if self._config.tracking.offline:
            return
        try:
            server.check_server(self._uri)
        except TrackingRefused as error:
            raise ConfigError(f"tracking.uri: {error}") from error
        except TrackingUnavailable as error:
            self._console.print(f"note: {error}. The run trains all the same and is uploaded when it answers.")

    def _mirror(self, folder: Path) -> None:
        if not self._config.tracking.offline:
            self._threads[folder] = MirrorThread(folder, self._uri)
            self._threads[folder].start()

    def _upload(self, folders: Sequence[Path]) -> None:
        """Wait, as long as the config allows, for what MLflow has not got yet; say what is left and how to send it."""
        job.raise_on_signals()  # Ctrl-C ends the waiting
        deadline = time.monotonic() + self._config.tracking.upload_wait_sec
        with suppress(Interrupted), self._console.status("uploading to MLflow"):
            for folder in folders:
                if folder in self._threads:
                    self._threads[folder].close(max(0.0, deadline - time.monotonic()))
        left = [folder for folder in folders if not Mirror(folder).complete]
        for folder in left:
            why = self._threads[folder].status if folder in self._threads else "tracking.offline=true"
            self._console.print(f"not uploaded: {folder}: {why}", soft_wrap=True)
        if left:
            paths = " ".join(os.path.relpath(folder) for folder in left if folder.parent not in left)
            self._console.print(f"upload it with: {python('tracking')} sync {paths}", soft_wrap=True)

    def _print_link(self, folder: Path) -> None:
        mirrored = Mirror(folder)
        if mirrored.run_id and mirrored.experiment_id:
            self._print_ui(server.run_link(self._uri, mirrored.experiment_id, mirrored.run_id))

    def _print_compare(self, folder: Path, folders: Sequence[Path]) -> None:
        found = [Mirror(path) for path in folders]
        run_ids = [mirrored.run_id for mirrored in found if mirrored.run_id]
        experiment_id = Mirror(folder).experiment_id
        if experiment_id and run_ids:
            self._print_ui(server.compare_link(self._uri, experiment_id, run_ids))

    def _print_report(self, folder: Path, config: RunConfig) -> None:
        """Where the sweep's report is, and the command that makes it again, of a study by its axes."""
        if (folder / "report.html").exists():
            self._console.print(f"report: {folder / 'report.html'}", soft_wrap=True, markup=False)
        words = [f"report {folder.name}"]
        words += [f"--by {','.join(config.study.by)}"] if config.study.by else []
        words += [f"--reference {','.join(config.study.reference)}"] if config.study.reference else []
        if config.tracking.offline:
            words += ["--from-folders", f"--runs-dir {os.path.relpath(folder.parent)}"]
        elif config.tracking.uri:
            words.append(f"--uri {shlex.quote(server.strip_credentials(self._uri))}")
        self._console.print(f"report again: {python('tracking')} {' '.join(words)}", soft_wrap=True, markup=False)

    def _print_ui(self, link: str) -> None:
        command = server.ui_command(self._uri)
        if command:
            self._console.print(f"MLflow UI: {python('mlflow')} {command.removeprefix('mlflow ')}", soft_wrap=True)
        self._console.print(f"MLflow {'then open' if command else 'UI'}: {link}", soft_wrap=True)


def python(module: str) -> str:
    """The command that runs a module with this interpreter, from the folder where the user is."""
    executable = Path(sys.executable)
    shown = executable.relative_to(Path.cwd()) if executable.is_relative_to(Path.cwd()) else executable
    root = Path(__file__).resolve().parent.parent
    path = f"PYTHONPATH={root} " if module == "tracking" and root != Path.cwd() else ""
    return f"{path}{shown} -m {module}"


def exit_code(jobs: Sequence[Job]) -> int:
    """0 = all ran, 1 = one failed, 2 = none could be run as asked."""
    kinds = [one.result.failure.kind if one.result and one.result.failure else "" for one in jobs]
    if all(kind == "bad_input" for kind in kinds):
        return 2
    return 0 if all(one.finished for one in jobs) else 1
