"""A worker from its start to the result of its run: spawn it, watch it, stop it, and never leave it behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.jobs.node.description import describe
from tracking.jobs.node.rendezvous.nodes import NodeFailed, Nodes
from tracking.jobs.node.signals import Interrupted
from tracking.machine.environment import processes
from tracking.machine.usage import Neighbours, SystemMetricsThread
from tracking.measure import kernels
from tracking.measure.bottleneck import explain
from tracking.measure.training import clock
from tracking.record import Failure, Journal, Record, Result, WorkerLog, failures, journal, run_folder
from tracking.request.nodes import jobs_on_the_same_machine

POLL_SEC = 0.1
GRACE_SEC = 5.0  # time between asking a worker to end and killing it
GIVEN_UP = ("nan", *failures.STOPPED_BY)  # failures that say of a run that it had not reached its target by then
KILL_SEC = 30.0  # how long a killed process may take to be gone; one that waits for a driver can stay for ever


class WorkerCommand(Protocol):
    """What starts a worker, as tracking.jobs.worker_command makes it.

    One that is `contained` ends when its standard input does; `ending` is a command that ends it for certain, if any.
    """

    @property
    def argv(self) -> Sequence[str]: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def contained(self) -> bool: ...
    @property
    def ending(self) -> Sequence[str]: ...


class TimedOut(Exception):
    """The run took longer than timeout_sec."""


def run_job(
    folder: Path, config: RunConfig, command: WorkerCommand, gpu_uuids: list[str],
    on_record: Callable[[Record], None], started: float, held: int, others: Nodes | None = None,
) -> Result:  # fmt: skip
    """Train the run in `folder` and return its result, whichever it is.

    `started` is when the job began on the monotonic clock; `on_record` is shown every record as it is written; `held`
    is the descriptor of `run_lock.hold`. Raises Interrupted when no process is left; the result is then the caller's.
    """
    # A container's processes are children of its engine's, and another node's on this host of another supervisor; the
    # commands of both name the folder.
    marks = [str(folder.absolute())] if command.contained or others else []
    neighbours = Neighbours(gpu_uuids, marks=marks, known=jobs_on_the_same_machine(config))
    kills = processes.oom_kills()
    try:
        failure = supervise(folder, config, command, gpu_uuids, on_record, started, held, neighbours, others)
        if others and failure is None and (own := run_folder.read_result(folder)) and own.failure:
            cause = others.cause(own.failure)
            failure = None if cause is own.failure else cause
    except NodeFailed as error:
        failure = error.failure
    except TimedOut as error:
        failure = Failure("timeout", str(error))
    except Exception as error:  # a full disk, a bug of ours: what comes after this job can still go
        failure = failures.trouble(error)
    if processes.oom_kills() > kills:
        failure = failures.short_of_memory(folder, failure)
    with suppress(OSError):  # a full disk: then a comparison has to do without
        record_given_up(folder, config, failure)
    result = end(folder, failure, neighbours.tag(), explain(folder))
    if others is None:  # else another node's worker may still be writing there
        kernels.remove_scratch(folder)
    describe(folder)
    return result


def record_given_up(folder: Path, config: RunConfig, failure: Failure | None) -> None:
    """Journal by when a run that diverged or was stopped had not reached its target, and its cost. Raises OSError."""
    own = run_folder.read_result(folder)
    if own is not None and (failure is None or own.status == "finished"):  # `end` chooses in the same way.
        failure = own.failure
    if failure is None or failure.kind not in GIVEN_UP:
        return
    censored = clock.censored(journal.events(folder / run_folder.JOURNAL), config.targets())
    if not censored:
        return
    price = config.instance.price_per_hour
    hours = censored[quantities.TIME_CENSORED_SEC] / 3600
    usd = {} if price is None else {quantities.COST_USD: price * config.nodes * hours}
    log = Journal(folder / run_folder.JOURNAL)
    log.metrics(censored | usd)
    log.close()


def supervise(
    folder: Path, config: RunConfig, command: WorkerCommand, gpu_uuids: list[str],
    on_record: Callable[[Record], None], started: float, held: int, neighbours: Neighbours | None = None,
    others: Nodes | None = None,
) -> Failure | None:  # fmt: skip
    """Run the worker to its end; the failure that it could not report itself. Leaves no process behind."""
    log = Journal(folder / run_folder.JOURNAL)
    offset, samples = position(folder / run_folder.JOURNAL)
    log.event("init_start", since_command_sec=time.monotonic() - started)
    printed = WorkerLog(folder / run_folder.WORKER_LOG)
    with printed as output:
        # A session of its own: Ctrl-C reaches the launcher alone, which then ends the worker in good order.
        process = subprocess.Popen(
            list(command.argv), env=dict(command.env), stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE if command.contained else subprocess.DEVNULL, start_new_session=True, pass_fds=[held],
        )  # fmt: skip
    sensors = None
    try:
        if config.tracking.system_metrics_interval_sec:
            interval_sec = config.tracking.system_metrics_interval_sec
            sensors = SystemMetricsThread(log, gpu_uuids, folder, interval_sec, "", samples, neighbours)
            sensors.start()
        watch(process, folder / run_folder.JOURNAL, config.timeout_sec, on_record, offset, others)
    finally:
        stop(process)
        if command.contained:
            end_container(process, command.ending)
        printed.close()
        if sensors is not None:
            sensors.close()
        if neighbours and (tag := neighbours.tag()):
            with suppress(OSError):  # a full disk
                log.tags({"neighbours": tag})
    log.close()
    return failures.unexplained(folder, process, command.contained)


def position(path: Path) -> tuple[int, int]:
    """Bytes and samples of system metrics that a journal holds, of attempts before this one."""
    offset = samples = 0
    for record, end in journal.read(path):
        offset = end
        samples += record.kind == "metrics" and any(key.startswith(quantities.SYSTEM) for key in record.values)
    return offset, samples


def watch(
    process: subprocess.Popen[bytes],
    path: Path,
    timeout_sec: float | None,
    on_record: Callable[[Record], None],
    offset: int = 0,
    others: Nodes | None = None,
) -> None:
    """Show the records from byte `offset` on until the worker ends. Raises TimedOut, and NodeFailed of `others`."""
    deadline = time.monotonic() + timeout_sec if timeout_sec else float("inf")
    running = True
    while running:
        running = process.poll() is None
        for record, position in journal.read(path, offset):
            offset = position
            on_record(record)
        if time.monotonic() > deadline:
            raise TimedOut(f"the run took longer than timeout_sec={timeout_sec:g}")
        if running:
            if others:
                others.check()
            time.sleep(POLL_SEC)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the worker and every process it started, kindly first."""
    for signum, patience in ((signal.SIGTERM, GRACE_SEC), (signal.SIGKILL, KILL_SEC)):
        with suppress(ProcessLookupError):  # the whole group is gone
            os.killpg(process.pid, signum)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    # What is killed can take seconds to give a GPU's memory back, and the next job is to find it free.
    deadline = time.monotonic() + KILL_SEC
    while process.returncode is not None and processes.alive(process.pid) and time.monotonic() < deadline:
        time.sleep(POLL_SEC)


def end_container(process: subprocess.Popen[bytes], ending: Sequence[str]) -> None:
    """End what the engine may have left running when its own process ended: let go of it, and remove it by name."""
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    if ending:
        with suppress(OSError, subprocess.SubprocessError):  # the guard in the container ends it all the same
            subprocess.run(list(ending), capture_output=True, stdin=subprocess.DEVNULL, timeout=KILL_SEC, check=False)


def stopped(folder: Path, error: Interrupted) -> Result:
    """The result of a run that the launcher was told to stop."""
    failure = Failure(f"signal:{error.signum}", f"stopped by {error}", failures.last_words(folder))
    with suppress(OSError, ValueError):
        record_given_up(folder, run_folder.read_config(folder), failure)
    return end(folder, failure)


def end(
    folder: Path, failure: Failure | None, neighbours: str = "", bottleneck: dict[str, Any] | None = None
) -> Result:
    """The run's result, written where there is none: what a worker has finished stays finished.

    With who was beside it, and what limited it."""
    seen: dict[str, Any] = {"neighbours": neighbours, "bottleneck": bottleneck}
    known = {name: value for name, value in seen.items() if value}
    own = run_folder.read_result(folder)
    if own is not None and (failure is None or own.status == "finished"):
        if own.failure and (told := failures.with_last_words(folder, own.failure)) != own.failure:
            known["failure"] = told
        if not known:
            return own
        result = dataclasses.replace(own, **known)
    else:
        assert failure is not None
        status = "killed" if failure.kind.startswith("signal:") else "failed"
        result = Result(status, failure=failure, **known)
    with suppress(OSError):  # no room even for that: `sync` ends the run when there is
        run_folder.write_result(folder, result)
    return result
