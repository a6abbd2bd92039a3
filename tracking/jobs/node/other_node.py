"""The part of a node that is not the head: its worker, its metrics journal, its exit status."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from conf.schema import ConfigError
from tracking.jobs.node import interruption, signals, worker_process
from tracking.jobs.node.interruption import say
from tracking.jobs.node.nodes import NodeFailed
from tracking.jobs.node.task import Part
from tracking.jobs.worker_command import worker_command
from tracking.machine.environment import processes
from tracking.record import Failure, documents, failures, files, node_records


def run(part: Part) -> int:
    """Train this part of a scheduled run. Returns the exit code. Raises ConfigError, Interrupted."""
    assert part.others is not None
    part.others.folder()
    try:
        failure = train(part)
    except ConfigError as error:
        part.others.end(Failure("bad_input", f"node {node_records.name()}: {error}"))
        raise
    words = failure.message if failure else "its part has ended"
    say(part.task, f"node {node_records.name()}: {words}")
    return 1 if failure else 0


def train(part: Part) -> Failure | None:
    """Train on a non-head node. Returns why it failed, or None. Leaves no process behind.

    The head node is told either way. Raises Interrupted, ConfigError.
    """
    folder, others = part.folder, part.others
    assert others is not None
    part.config = dataclasses.replace(part.config, rendezvous=others.rendezvous)
    command = worker_command(part.config, folder)
    kills = processes.oom_kills()
    try:
        process = worker_process.run(part, command, None)
        failure = others.cause(explained(folder, node_records.name(), process.returncode))
        if failure and processes.oom_kills() > kills:
            failure = failures.short_of_memory(folder, failure)
    except NodeFailed as error:
        others.end(None)  # the first node to fail has reported it
        return error.failure
    except signals.Interrupted as error:
        others.end(interruption.stopped(part.lifeline, error))
        raise
    except Exception as error:
        failure = failures.of_launcher(error)
    others.end(failure)
    return failure


def explained(folder: Path, name: str, code: int | None) -> Failure | None:
    """Why this node's worker failed; None if it did not."""
    path = folder / node_records.failure_file(name)
    if files.exists(path):
        return Failure(**documents.read_json(path))
    if code == 0:
        return None
    if code is not None and code < 0:
        return Failure(f"signal:{-code}", f"node {name}: the worker was killed by signal {-code}")
    message = f"node {name}: the worker ended with exit code {code}; its log: {name} in {os.fspath(folder)}"
    return Failure("error", message)
