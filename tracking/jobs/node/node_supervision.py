"""The part of a node but the first: its worker, its journal of system metrics, and its word on how it ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from conf.schema import RunConfig
from tracking.jobs.node import signals, supervision
from tracking.jobs.node.rendezvous.nodes import NodeFailed, Nodes
from tracking.machine.environment import processes
from tracking.machine.usage import SystemMetricsThread
from tracking.record import Failure, Journal, WorkerLog, documents, failures, files, nodes, run_folder


def stopped(error: signals.Interrupted) -> Failure:
    return Failure(f"signal:{error.signum}", f"node {nodes.name()}: stopped by {error}")


def run_node(
    folder: Path, config: RunConfig, command: supervision.WorkerCommand, gpu_uuids: list[str], others: Nodes,
    why: Callable[[signals.Interrupted], Failure] = stopped,
) -> Failure | None:  # fmt: skip
    """Train this node's part of the run in `folder`; why it failed, if it did. Leaves no process behind.

    Node 0 is told either way, and `why` where this one is told to stop. Raises Interrupted when no process is left.
    """
    kills = processes.oom_kills()
    try:
        failure = supervise(folder, config, command, gpu_uuids, others)
        if failure and processes.oom_kills() > kills:
            failure = failures.short_of_memory(folder, failure)
    except NodeFailed as error:
        others.end(None)  # the first to fail has said it
        return error.failure
    except signals.Interrupted as error:
        others.end(why(error))
        raise
    except Exception as error:
        failure = failures.trouble(error)
    others.end(failure)
    return failure


def supervise(
    folder: Path, config: RunConfig, command: supervision.WorkerCommand, gpu_uuids: list[str], others: Nodes
) -> Failure | None:
    name = nodes.name()
    path = folder / nodes.file_of(run_folder.JOURNAL, name)
    log = Journal(path)
    log.event("init_start")
    printed = WorkerLog(folder / nodes.file_of(run_folder.WORKER_LOG, name))
    with printed as output:
        process = subprocess.Popen(
            list(command.argv), env=dict(command.env), stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE if command.contained else subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    sensors = None
    try:
        if interval_sec := config.tracking.system_metrics_interval_sec:
            sensors = SystemMetricsThread(log, gpu_uuids, folder, interval_sec, name)
            sensors.start()
        supervision.watch(process, path, None, lambda record: None, others=others)
    finally:
        supervision.stop(process)
        if command.contained:
            supervision.end_container(process, command.ending)
        printed.close()
        if sensors is not None:
            sensors.close()
        with suppress(OSError):
            log.close()
    return others.cause(explained(folder, name, process.returncode))


def explained(folder: Path, name: str, code: int | None) -> Failure | None:
    """Why this node's worker failed; None where it has not."""
    path = folder / nodes.failure_file(name)
    if files.exists(path):
        return Failure(**documents.read_json(path))
    if code == 0:
        return None
    if code is not None and code < 0:
        return Failure(f"signal:{-code}", f"node {name}: the worker was killed by signal {-code}")
    return Failure(
        "error", f"node {name}: the worker ended with exit code {code}; its log: {name} in {os.fspath(folder)}"
    )
