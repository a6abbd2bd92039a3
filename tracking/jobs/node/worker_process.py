"""A worker on one node: starts it, watches it while sampling the node, and never leaves it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.base.number_text import significant
from tracking.jobs.handover import ForkedWorker, Started, fork_or_start
from tracking.jobs.node import interruption, machine_shares, signals
from tracking.jobs.node.nodes import Nodes
from tracking.jobs.node.task import Part
from tracking.jobs.worker_command import LAUNCHER, WorkerCommand
from tracking.machine.environment import processes
from tracking.machine.usage import CoTenants, SystemMetricsThread
from tracking.record import Journal, Record, WorkerLog, attempts, journal, node_records, run_folder

POLL_SEC = 0.1
# Variables of the run, its share or its launcher that no import of a worker reads.
UNREAD = (LAUNCHER, "TIMETRIAL_SCRATCH", "CUDA_VISIBLE_DEVICES", machine_shares.CORES, machine_shares.MEMORY)
# If one of these is set, libraries bind or count their threads as they load, and a fork cannot change that.
THREADING = (
    "OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "GOMP_CPU_AFFINITY", "KMP_AFFINITY",
    "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
GRACE_SEC = 5.0  # from asking a worker to end to killing it
KILL_SEC = 30.0  # longest wait for a killed process; one that waits for a driver may never end


class TimedOut(Exception):
    """The run took longer than it may; `kind` is the kind of its failure."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Limits:
    """The time limits of a run that starts now, with its journal at `path`. Only the head node has limits."""

    def __init__(self, config: RunConfig, path: Path) -> None:
        self._timeout_sec, self._cap_sec = config.timeout_sec, config.search.cap_sec
        self._targets = config.targets()
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._started = time.monotonic()
        self._clock: float | None = None  # monotonic seconds at which the training's clock began

    def check(self) -> None:
        """Raise TimedOut if a limit has passed. A run that reached its target before its cap may finish."""
        now = time.monotonic()
        if self._timeout_sec and now > self._started + self._timeout_sec:
            raise TimedOut("timeout", f"the run took longer than timeout_sec={self._timeout_sec:g}")
        if self._cap_sec is None:
            return
        if self._clock is None:
            self._read()
        if self._clock is not None and now > self._clock + self._cap_sec and not self._has_reached():
            raise TimedOut("search", f"the search stopped it {significant(self._cap_sec, 4)} s after its clock began")

    def _read(self) -> None:
        with suppress(OSError, ValueError):  # read again at the next check
            for record, offset in journal.read(self._path, self._offset):
                self._offset = offset
                if record.kind == "event" and record.key == "run_start":
                    self._clock = record.clock_sec

    def _has_reached(self) -> bool:
        """Whether the target was reached or the clock has stopped. If so, the cap is removed."""
        with suppress(OSError, ValueError):
            events = journal.events(self._path)
            if any(self._ends_the_clock(event) for event in events):
                self._cap_sec = None
        return self._cap_sec is None

    def _ends_the_clock(self, event: Record) -> bool:
        values = event.values.get("metrics", {}) if event.key == "eval_accuracy" else {}
        return event.key == "run_stop" or attempts.reached(values, self._targets)


def run(part: Part, command: WorkerCommand, co_tenants: CoTenants | None, **beginning: float) -> Started:
    """Run this node's worker to its end, leave no process behind, and return the ended process.

    `beginning` is journaled with the start. Raises TimedOut, NodeFailed of another node, Interrupted.
    """
    folder, config = part.folder, part.config
    name = node_records.name() if config.node_rank else ""  # The head node's files have the plain names.
    path, log_path = (
        folder / (node_records.file_of(file, name) if name else file)
        for file in (run_folder.JOURNAL, run_folder.WORKER_LOG)
    )
    log = Journal(path)
    first_sample = num_samples(path)
    limits = None if name else Limits(config, path)
    log.event("init_start", **beginning)
    since = None if name else path.stat().st_size
    printed = WorkerLog(log_path)
    with printed as output:
        process = started(part, command, co_tenants, output)
    try:
        with sampled(log, part.gpu_uuids, folder, config, name, first_sample, co_tenants):
            try:
                with saved_once_more(process, folder, config, since):
                    watch(process, limits, part.others)
            finally:
                end(process, command, config)
                printed.close()
    finally:
        with suppress(OSError):  # a full disk
            log.close()
    return process


def started(part: Part, command: WorkerCommand, co_tenants: CoTenants | None, output: int) -> Started:
    """Start the worker in its own session: a signal to the supervisor's group does not reach it."""
    if leaves_daemons(part.config, command):
        processes.adopt_orphans()  # of a worker that is killed; see `end`
    environ = {**command.env, **interruption.prepared(part.folder, part.config)}
    locks = [part.lock] if part.lock >= 0 else []

    def new_process(output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(command.argv), env=environ, stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE if command.contained else subprocess.DEVNULL, start_new_session=True,
            pass_fds=locks,
        )  # fmt: skip

    if part.forks is None:
        return new_process(output)
    imports_by = loaded_with(part.config, environ)
    on_start = co_tenants.roots.add if co_tenants else lambda _: None
    return fork_or_start(part.forks, command.argv, environ, [output, *locks], imports_by, new_process, on_start)


def loaded_with(config: RunConfig, environ: Mapping[str, str]) -> list[object]:
    """Everything that a worker's imports depend on, except its command and folder.

    A fork gets its cores, GPUs and number of threads later. Cores and threads count only if a variable of THREADING is
    set.
    """
    variables = sorted((name, value) for name, value in environ.items() if name not in UNREAD)
    if not any(name in environ for name in THREADING):
        return [variables]
    return [variables, processes.threads_each(config.processes_per_node()), sorted(os.sched_getaffinity(0))]


@contextmanager
def saved_once_more(process: Started, folder: Path, config: RunConfig, since: int | None) -> Iterator[None]:
    """Let the worker save before it ends, if the block is interrupted or times out.

    `since`: the byte at which its part of the head node's journal begins.
    """
    try:
        yield
    except signals.Interrupted as error:
        interruption.let_save(process, folder, config, error.signum, since)
        raise
    except TimedOut as error:
        if error.kind == "timeout":  # a search discards the runs that it stops
            interruption.let_save(process, folder, config, since=since)
        raise


@contextmanager
def sampled(
    log: Journal, gpu_uuids: list[str], folder: Path, config: RunConfig, node: str = "", first_sample: int = 0,
    co_tenants: CoTenants | None = None,
) -> Iterator[None]:  # fmt: skip
    """Sample the machine into the journal; at the end, tag the run with its co-tenants."""
    sensors = None
    if interval_sec := config.tracking.system_metrics_interval_sec:
        sensors = SystemMetricsThread(log, gpu_uuids, folder, interval_sec, node, first_sample, co_tenants).start()
    try:
        yield
    finally:
        if sensors is not None:
            sensors.close()
        if co_tenants and (tag := co_tenants.tag()):
            with suppress(OSError):  # a full disk
                log.tags({"neighbours": tag})


def num_samples(path: Path) -> int:
    """The number of system-metric samples that earlier attempts have in the journal."""
    metrics = (record.values for record, _ in journal.read(path) if record.kind == "metrics")
    return sum(any(key.startswith(quantities.SYSTEM) for key in values) for values in metrics)


def watch(process: Started, limits: Limits | None, others: Nodes | None) -> None:
    """Wait for the worker's end. Raises TimedOut, and NodeFailed of `others`."""
    while process.poll() is None:
        if limits:
            limits.check()
        if others:
            others.check()
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SEC)


def stop(running: Sequence[Started]) -> None:
    """End these processes and all that they started: ask first, kill after GRACE_SEC or at a second signal.

    A worker that its server has not forked yet never begins: the server may import for long.
    """
    running = [process for process in running if not (isinstance(process, ForkedWorker) and process.withdraw())]
    for signum, patience_sec in ((signal.SIGTERM, GRACE_SEC), (signal.SIGKILL, KILL_SEC)):
        for process in running:
            with suppress(ProcessLookupError):  # the whole group is gone
                os.killpg(process.pid, signum)
        deadline = time.monotonic() + patience_sec
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            if signum == signal.SIGTERM and signals.hurried():
                break
            time.sleep(POLL_SEC / 5)
    # A killed process can take seconds to free a GPU's memory, and the next job needs it.
    deadline = time.monotonic() + KILL_SEC
    ended = [process for process in running if process.returncode is not None]
    while any(processes.alive(process.pid) for process in ended) and time.monotonic() < deadline:
        time.sleep(POLL_SEC)


def end(process: Started, command: WorkerCommand, config: RunConfig) -> None:
    """End a worker and all that it started. A killed worker leaves daemons of its program, such as torchrun's ranks."""
    stop([process])
    if command.contained:
        end_container(process, command.ending)
    if leaves_daemons(config, command):
        processes.kill_other_sessions(KILL_SEC)


def leaves_daemons(config: RunConfig, command: WorkerCommand) -> bool:
    """Whether a killed worker may leave processes: a program's does, unless an engine's service ends its container."""
    return config.is_program() and not command.ending


def end_container(process: Started, ending: Sequence[str]) -> None:
    """End a container that the engine may have left running: close its lifeline, and remove it by name."""
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    if ending:
        with suppress(OSError, subprocess.SubprocessError):  # the guard inside the container ends it anyway
            subprocess.run(list(ending), capture_output=True, stdin=subprocess.DEVNULL, timeout=KILL_SEC, check=False)
