"""The run of a user's script, in the process of rank 0: its folder, journal and companion."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.analysis.results import UNCOUNTED_TAG
from tracking.api import script, script_mlflow
from tracking.api.options import TrainingSetup, TrialOptions, config_of, params_of
from tracking.api.script_arguments import MLFLOW_ALLOWS, MetricNames
from tracking.api.script_process import THIS_PROCESS, ScriptProcess
from tracking.base import installation
from tracking.base.secrets import strip_credentials
from tracking.machine.environment import fingerprint
from tracking.measure import bottleneck
from tracking.measure.training import Meter, classify, summary
from tracking.record import (
    Failure,
    Journal,
    Record,
    Result,
    documents,
    failures,
    headline,
    journal,
    run_folder,
    run_lock,
)
from tracking.store import server

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HELD_SIGNALS = (*END_SIGNALS, signal.SIGCHLD)  # A DataLoader's handler of SIGCHLD raises if a worker was killed.


class ScriptJournal(Journal):
    """A journal that stops at the first write error, as on a full disk, while the script trains on.

    `write_error` is that error, or None. With `strict` the error is raised.
    """

    write_error: OSError | None = None
    strict = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._pid = os.getpid()

    def _write(self, record: Record) -> Record:
        if self.write_error is not None or os.getpid() != self._pid:
            return record
        try:
            return super()._write(record)
        except OSError as error:
            if self.strict:
                raise
            self.write_error = error
            say(f"recording stopped, the training goes on: {error}")
        return record


class ScriptRun:
    """The run that this process trains, with its `folder`, `config` and `journal`.

    `called_at` is the monotonic time at which the script started the training. Raises ConfigError if the run cannot be
    made.
    """

    def __init__(
        self, options: TrialOptions, setup: TrainingSetup, facts: fingerprint.Fingerprint, tags: dict[str, str],
        called_at: float, process: ScriptProcess = THIS_PROCESS,
    ) -> None:  # fmt: skip
        options, note = with_script_defaults(options)
        self.config: RunConfig = config_of(options, setup)
        self._exit_stack, self._pid = ExitStack(), os.getpid()
        self._process, self._uri, self.tags = process, options.uri, tags
        self._missing = list(options.target)  # the target's metrics that no evaluation has had
        self._linked = False  # whether the script's own run in MLflow is noted
        self.node_by_rank: tuple[str, ...] = ()  # the machine of each rank
        self._evaluated = False  # whether an evaluation was noted; the first one reports missing metrics
        names = MetricNames()
        try:
            owner = self._make_folder(options, setup, names.with_keys(params_of(options, setup, self.config)))
            self.journal = ScriptJournal(self.folder / run_folder.JOURNAL)
            self.journal.event("init_start", since_command_sec=process.seconds_since_begin(called_at))
            self.environment = fingerprint.record(self.folder, facts)
            self.journal.tags(self.environment | {"script": script.name()} | tags)
        except BaseException as error:
            self._exit_stack.close()
            if "folder" in vars(self):  # Leave no half-made folder.
                shutil.rmtree(self.folder, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            raise ConfigError(f"runs_dir={options.runs_dir}: {error}. Next: give a folder with free space") from None
        process.start_companion(self.folder, owner.descriptor)
        say(f"run folder {self.folder}")
        if note:
            say(note)
        self._report_renamed(names, "param")

    def _make_folder(
        self, options: TrialOptions, setup: TrainingSetup, values: dict[str, journal.Scalar]
    ) -> run_lock.Owner:
        from tracking.jobs.plan import run_setup  # Here, since the import is slow.

        uri = server.absolute_uri(options.uri) if options.uri else server.default_uri()
        name = run_setup.run_name(self.config, seeded=setup.seed is not None)
        # The lock lasts until this process and the companion are gone.
        owner = self._exit_stack.enter_context(run_setup.make_folder(name, Path(options.runs_dir)))
        self.folder: Path = owner.folder
        run_setup.prepare(self.folder, name, self.config, script.arguments(), strip_credentials(uri), values=values)
        return owner

    def link(self, loggers: Iterable[Any] = ()) -> None:
        """Note the script's own run in MLflow, as soon as it has one."""
        run_id = None if self._linked else script_mlflow.active_run_id(loggers)
        if run_id is not None:
            self._linked = True
            self.journal.tags({journal.LINK_TAG: run_id})

    def _report_renamed(self, names: MetricNames, kind: str) -> None:
        """Report names that MLflow does not allow, and note them in the journal."""
        if renamed := names.unreported():
            pairs = ", ".join(f"{name!r} is called {key!r}" for name, key in renamed.items())
            say(f"{kind} {pairs}: {MLFLOW_ALLOWS}")
            self.journal.tags({f"{kind}_names": names.tag()})

    def note_metrics(self, metrics: Mapping[str, float], names: MetricNames) -> None:
        """Note which of the target's metrics an evaluation has. Reports those that the first evaluation lacks."""
        self._report_renamed(names, "metric")
        self._missing = [name for name in self._missing if name not in metrics]
        if self._missing and not self._evaluated:
            say(f"target={', '.join(self._missing)}: was not evaluated. Evaluated: {', '.join(metrics) or 'no metric'}")
        self._evaluated = True

    def is_training_process(self) -> bool:
        """Whether this process trains. The end of a fork of the script does not end the run."""
        return os.getpid() == self._pid

    def finish(self, meter: Meter, measured: dict[str, float], without: tuple[str, ...] = ()) -> None:
        """Write the result at the end of a training, without figures whose keys begin with one of `without`.

        The companion does the rest.
        """
        if not self.is_training_process():
            return
        try:
            if self.journal.write_error is not None:
                raise self.journal.write_error
            self.journal.strict = True
            missing = ", ".join(self._missing)
            if missing and not self._evaluated:
                say(f"target={missing}: was not evaluated. Next: call trial.evaluate in your loop")
            if missing and self._evaluated and UNCOUNTED_TAG not in self.tags:  # Not a measured miss of the target.
                self.journal.tags({UNCOUNTED_TAG: f"no evaluation had the target's {missing}"})
            spread = summary.steps_by_node(meter.windows, self.node_by_rank)
            summary.write(self.config, self.folder, self.journal, meter.windows, measured, "samples", without, spread)
        except OSError as error:  # The training itself succeeded, so the script gets no exception.
            self.fail(error)
        else:
            self._end()

    def fail(self, error: BaseException) -> None:
        """Write the failure as the result, unless there is a result. An earlier failure of a rank takes its place."""
        if not self.is_training_process():
            return
        with signals_held_back():  # torchrun sends SIGTERM as soon as another rank has failed.
            if run_folder.read_result(self.folder) is None:
                failure = failures.first_of_ranks(self.folder, failure_of(error, 0))
                status = "killed" if failure.kind.startswith("signal:") else "failed"
                with suppress(OSError):  # On a full disk, the companion or `sync` ends the run later.
                    run_folder.write_result(self.folder, Result(status, targets=self.config.targets(), failure=failure))
            self._end()

    def _end(self) -> None:
        with suppress(OSError):
            self.journal.close()
        result = run_folder.read_result(self.folder)
        message = "" if result is None else result.failure.message if result.failure else headline(result)
        say(f"{message or 'ended'}; {self.folder}")
        if result is not None and result.failure is None:
            for line in bottleneck.verdict_lines(self.folder):
                say(line)
        offline = "nothing is uploaded (offline=True)" if self.config.tracking.offline else ""
        upload = offline or "upload goes on without the script"
        say(f"{upload}; to upload the rest: {installation.TRACKING} sync {self.folder}")
        if not self._process.printed_report_command:
            self._process.printed_report_command = True
            say(f"a table of the runs: {self._report_command()}")
        self._exit_stack.close()
        self._process.last_end = time.monotonic()

    def _report_command(self) -> str:
        """The command that compares this run with others of its experiment."""
        option = ""
        if self.config.tracking.offline:
            option = f" --from-folders --runs-dir {shlex.quote(str(self.folder.parent))}"
        elif self._uri:
            option = f" --uri {shlex.quote(strip_credentials(self._uri))}"
        return f"{installation.TRACKING} report {shlex.quote(self.config.tracking.experiment)}{option}"


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Hold back signals that end or interrupt this process. The last one that ends it takes effect after the block."""
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers only in the main thread.
        yield
        return
    received: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        received.append(signum)

    former = {number: signal.signal(number, note) for number in HELD_SIGNALS if signal.getsignal(number) is not None}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        for last in ([number for number in received if number in END_SIGNALS] or received)[-1:]:
            signal.raise_signal(last)


def failure_of(error: BaseException, rank: int) -> Failure:
    return Failure(classify(error), f"{type(error).__name__}: {error}".rstrip(": "), traceback.format_exc(), rank)


def with_script_defaults(options: TrialOptions) -> tuple[TrialOptions, str]:
    """The options with the script's own server and experiment as defaults, and a note to print, or an empty text."""
    if options.offline:
        return dataclasses.replace(options, experiment=options.experiment or script_mlflow.DEFAULT_EXPERIMENT), ""
    uri, note = (server.absolute_uri(options.uri), "") if options.uri else script_mlflow.script_uri()
    experiment = options.experiment or script_mlflow.script_experiment(uri)
    return dataclasses.replace(options, uri=uri if note else options.uri, experiment=experiment), note


def say(message: str) -> None:
    bars = sys.modules.get("tqdm")  # tqdm prints a line without breaking its progress bar.
    with suppress(OSError, ValueError, AttributeError):  # The output is closed or missing.
        (bars.tqdm.write if bars else print)(f"timetrial: {message}")
        sys.stdout.flush()


def write_failure(folder: Path, error: BaseException, rank: int) -> None:
    """Record the failure of a rank other than 0, for the companion."""
    with signals_held_back(), suppress(OSError):
        documents.write_json(folder / run_folder.FAILURE.format(rank=rank), failure_of(error, rank))
