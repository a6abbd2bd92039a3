"""A launcher's uploads to MLflow: mirrors of its jobs and of earlier runs, missing uploads, and links."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from conf.launch_options import TrackingConfig
from conf.schema import ConfigError, RunConfig
from tracking.base import quantities
from tracking.base.installation import CODE, PREFIX, TRACKING
from tracking.base.number_text import counted
from tracking.base.safe_text import path_in_command, path_to_type
from tracking.base.secrets import strip_credentials
from tracking.jobs.follow import unfinished
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.jobs.node import Interrupted, signals
from tracking.jobs.plan import repair, sweep_view
from tracking.record import run_folder
from tracking.store import server
from tracking.store.mirror import Mirror
from tracking.store.server import TrackingRefused, TrackingUnavailable

MAX_COMPARED = 20  # runs that MLflow's compare page can show; each has a column
SILENT_SEC = 2.0  # a shorter wait is not announced


class Uploads:
    """The mirrors of one launcher's folders. `uri` is the tracking server's, without credentials."""

    def __init__(self, config: TrackingConfig, console: Console) -> None:
        self._config = config
        self._console = console
        self._uri = server.absolute_uri(config.uri) if config.uri else server.default_uri()
        self.uri = strip_credentials(self._uri)
        self._threads: dict[Path, MirrorThread] = {}
        self.elsewhere: set[Path] = set()  # folders that another process mirrors
        self._earlier: list[Path] = []  # folders of runs that were cut off, to be uploaded too

    def check_server(self, log_model: bool, register: bool) -> bool:
        """Whether the server takes runs; prints a note if it does not answer.

        Raises ConfigError if it refuses the user, or models that are to be logged or registered.
        """
        if self._config.offline:
            return False
        try:
            server.check_server(self._uri, self._config.experiment)
        except TrackingRefused as error:
            raise ConfigError(f"tracking.uri: {error}") from error
        except TrackingUnavailable as error:
            self._console.print(f"note: {error}. The run trains anyway and is uploaded when the server answers.")
            return False
        if log_model:
            try:
                server.check_models(self._uri, register)
            except TrackingRefused as error:
                raise ConfigError(str(error)) from error
        return True

    def say_server(self, log_model: bool, register: bool) -> None:
        """Check the server in a dry run, and print that it answers."""
        if self.check_server(log_model, register) and urlsplit(self.uri).scheme in ("http", "https"):
            self._console.print(f"tracking server: {self.uri} answers and takes runs", soft_wrap=True)

    def mark(self, folder: Path) -> None:
        """Mark a folder as not uploaded, for later launches; `wait` removes the mark."""
        if not self._config.offline:  # the user knows that offline runs are not uploaded
            unfinished.mark(folder)

    def start(self, folder: Path) -> None:
        """Mirror a folder from now on."""
        if not self._config.offline:
            self._threads[folder] = MirrorThread(folder, self._uri, num_mirrors=self._num_trainings).start()

    def _num_trainings(self) -> int:
        return sum(thread.mirrors_training for thread in list(self._threads.values()))

    def ended(self, folder: Path) -> None:
        """Upload the rest of a folder, in the background."""
        if folder in self._threads:
            self._threads[folder].ended()

    def look_back(self, root: Path) -> None:
        """Print how to upload incomplete earlier runs in `root`; end and upload those that were cut off."""
        if self._config.offline:
            return
        try:
            cut_off, others = unfinished.look_back(root)
            left = [run for folder in cut_off for run in unfinished.incomplete(folder)]
        except OSError:  # trouble with other runs must not stop these
            return
        if not cut_off and not others:
            return
        self.take_up(left)
        num = len(cut_off) + len(others)
        words = f" ({len(cut_off)} cut off: ended, and uploaded beside this run)" if cut_off else ""
        self._console.print(
            f"note: MLflow lacks parts of {counted(num, 'earlier run')}{words}. "
            f"Next: {sync_command([*cut_off, *others])}",
            soft_wrap=True,
        )

    def take_up(self, folders: Sequence[Path]) -> None:
        """End earlier runs that were cut off, and upload those that belong to this server."""
        for folder in folders:
            with suppress(Exception):  # `sync` says what is wrong with it, or who runs it
                repair(folder)
                mirror = Mirror(folder)
                if mirror.info.tracking_uri == self.uri and not mirror.complete:
                    self._earlier.append(folder)
                    self.start(folder)
                    self.ended(folder)

    def wait(self, folders: Sequence[Path]) -> None:
        """Wait for uploads as long as the config allows; print what is left and the command that uploads it."""
        signals.raise_on_signals()  # Ctrl-C ends the waiting
        folders = [*folders, *(folder for folder in self._earlier if folder not in folders)]
        folders = [folder for folder in folders if folder not in self.elsewhere]
        with suppress(Interrupted), self._console.status("uploading to MLflow"):
            self._finish([self._threads[folder] for folder in folders if folder in self._threads])
        left = [folder for folder in folders if not unfinished.is_complete(folder)]
        why = {folder: self._why(folder) for folder in left}
        for folder in left:
            same_reason = [run for run in left if run.parent == folder and why[run] == why[folder]]
            if why.get(folder.parent) != why[folder]:  # else the sweep's line gives the reason
                runs = f" and {len(same_reason)} of its runs" if same_reason else ""
                self._console.print(f"not uploaded: {folder}{runs}: {why[folder]}", soft_wrap=True)
        if left:
            command = sync_command([folder for folder in left if folder.parent not in left])
            self._console.print(f"upload it with: {command}", soft_wrap=True)
        for folder in folders:
            if not unfinished.incomplete(folder):
                unfinished.unmark(folder)
            for words in Mirror(folder).state.refused:
                self._console.print(f"left in the journal of {folder}: {words}", soft_wrap=True)

    def _finish(self, threads: Sequence[MirrorThread]) -> None:
        """Wait for the threads; after SILENT_SEC, print what is waited for and the longest wait."""
        began, wait_sec = time.monotonic(), self._config.upload_wait_sec
        deadline, soon = began + wait_sec, began + min(wait_sec, SILENT_SEC)
        for thread in threads:
            thread.finish_by(deadline)
        if soon < deadline and not all(thread.join(soon) for thread in threads):
            self._console.print(
                f"waiting for MLflow ({self.uri}), {wait_sec:g} s at most; Ctrl-C ends the wait. Nothing is lost: "
                "the rest stays in the run's folder, and the command that uploads it is printed",
                soft_wrap=True,
            )
        for thread in threads:
            thread.join(deadline)

    def _why(self, folder: Path) -> str:
        if self._config.offline:
            return "tracking.offline=true"
        waited = f"not done within tracking.upload_wait_sec={self._config.upload_wait_sec:g}"
        return (folder in self._threads and self._threads[folder].status) or waited

    def print_link(self, folder: Path) -> None:
        mirror = Mirror(folder)
        if mirror.run_id and mirror.experiment_id:
            link = server.run_link(self._uri, mirror.experiment_id, mirror.run_id)
            if mirror.state.registered:
                self._console.print(f"registered model: models:/{mirror.state.registered}", soft_wrap=True)
            self._print_ui({"": link, "all runs": server.experiment_link(self._uri, mirror.experiment_id)})

    def print_sweep(self, folder: Path, folders: Sequence[Path]) -> None:
        """Print links to a sweep's table, charts, comparison and report in MLflow."""
        mirror = Mirror(folder)
        jobs = map(Mirror, sorted(folders, key=_time_to_accuracy_sec))
        run_ids = [job.run_id for job in jobs if job.run_id]
        parent_id, experiment = mirror.run_id, mirror.experiment_id
        if not (parent_id and experiment and run_ids):
            return
        search, key = sweep_view.jobs_of(folder.name), sweep_view.SORTED_BY
        links = {"": server.search_link(self._uri, experiment, search, key)}
        if mirror.state.view:
            links = {"": server.view_link(self._uri, experiment, folder.name)}
            links["as charts"] = server.view_link(self._uri, experiment, folder.name, charts=True)
        if len(run_ids) <= MAX_COMPARED:
            links["side by side"] = server.compare_link(self._uri, experiment, run_ids)
        report = "report.html" if (folder / "report.html").exists() else ""
        links["report" if report else "the sweep"] = server.run_link(self._uri, experiment, parent_id, report)
        links["all runs"] = server.experiment_link(self._uri, experiment)
        self._print_ui(links)

    def print_report(self, folder: Path, config: RunConfig) -> None:
        """Print the path of the sweep's report, and the command that makes it again."""
        if (folder / "report.html").exists():
            self._console.print(f"report: {path_to_type(folder / 'report.html')}", soft_wrap=True)
        words = [f"report {folder.name}"]
        words += [f"--by {','.join(config.study.by)}"] if config.study.by else []
        words += [f"--reference {','.join(config.study.reference)}"] if config.study.reference else []
        if self._config.offline:
            words += ["--from-folders", f"--runs-dir {path_in_command(folder.parent)}"]
        elif config.tracking.uri:
            words.append(f"--uri {shlex.quote(self.uri)}")
        self._console.print(f"report again: {tracking_command()} {' '.join(words)}", soft_wrap=True)

    def _print_ui(self, links: Mapping[str, str]) -> None:
        """Print links with their labels, most useful first."""
        command = server.ui_command(self._uri)
        if command:
            self._console.print(f"MLflow UI: {python('mlflow')} {command.removeprefix('mlflow ')}", soft_wrap=True)
        for label, link in links.items():
            start = f"  {label}" if label else "  then open" if command else "MLflow UI"
            self._console.print(f"{start}: {link}", soft_wrap=True)


def _time_to_accuracy_sec(folder: Path) -> float:
    """A run's time to accuracy; infinite without one, so that it sorts last."""
    result = run_folder.read_result(folder)
    return result.metrics.get(quantities.TIME_TO_ACCURACY_SEC, math.inf) if result else math.inf


def sync_command(folders: Sequence[Path]) -> str:
    return f"{tracking_command()} sync {' '.join(map(path_in_command, folders))}"


def tracking_command() -> str:
    """The prefix of timetrial's tracking commands, for the present folder and interpreter."""
    if PREFIX:
        return TRACKING if shutil.which(TRACKING) else python(TRACKING)
    return f"PYTHONPATH={CODE} {python('tracking')}" if Path.cwd() != CODE else python("tracking")


def python(module: str) -> str:
    """The command that runs a module with this interpreter."""
    executable = Path(sys.executable)
    shown = executable.relative_to(Path.cwd()) if executable.is_relative_to(Path.cwd()) else executable
    return f"{shown} -m {module}"
