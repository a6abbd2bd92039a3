"""A node's part of a run: its worker, its samples, the other nodes, its end. A supervisor knows nothing of MLflow."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.jobs.handover import Assignment, Lifeline
from tracking.jobs.node import (
    head_node,
    interruption,
    machine_shares,
    nodes,
    outcome,
    scheduler_endings,
    signals,
    worker_process,
)
from tracking.jobs.node.interruption import say
from tracking.jobs.node.nodes import NodeFailed
from tracking.jobs.node.task import Part, Task
from tracking.jobs.worker_command import worker_command
from tracking.machine.environment import nvml, processes
from tracking.machine.stacks import check_verdicts, judge, make_all, needed_by, needs
from tracking.record import Failure, documents, failures, files, node_records, run_folder, run_lock
from tracking.request.checks import check_precision

SUBMITTED_SEC = 120.0  # upper limit for the submitter to release the folder's lock


def supervise(folder: Path, assigned: Assignment | None = None) -> int:
    """Train this node's part of the run in `folder`. Returns the exit code; AGAIN asks Slurm to queue the job again.

    `assigned` comes from a launcher on this machine; without it, srun has started this process.
    """
    config = run_folder.read_config(folder)
    if assigned:  # A resumed run may have begun elsewhere, with other limits.
        config.cluster = dataclasses.replace(config.cluster, kind="none", mirror="launcher")
        config.timeout_sec = assigned.timeout_sec
        config.tracking.system_metrics_interval_sec = assigned.system_metrics_interval_sec
    elif config.cluster.kind == "none":
        config.cluster = dataclasses.replace(config.cluster, kind="slurm")
    lifeline = Lifeline.of(config.cluster.kind)
    task = Task.local() if assigned else Task.of_slurm()
    config.stack.container.options += machine_shares.engine_options(config.stack.container.engine)
    if task.scheduled:
        os.environ[node_records.NAME] = task.node
    config = dataclasses.replace(config, node_rank=task.rank)
    visible = nvml.visible_gpus()
    started = assigned.started if assigned else processes.begun()
    part = Part(folder, config, task, config.chosen(visible), started, lifeline)
    if assigned:
        part.forks = assigned.forks
        # With jobs side by side, the launcher's other descendants are co-tenants.
        part.launcher = None if assigned.environment else os.getppid()
    with ExitStack() as stack:  # The folder stays locked until its end is written.
        try:
            signals.raise_on_signals()
            interruption.handle_warning(config, task)
            lifeline.watch()
            if task.rank == 0:
                lock = assigned.lock if assigned else None
                owner = run_lock.take(folder, inherited=lock, patience_sec=SUBMITTED_SEC)
                part.lock = stack.enter_context(owner).descriptor
            meet(part, len(visible), stack)
            return run(part) if task.rank else head_node.run(part)
        except signals.Interrupted as error:
            return interruption.end(folder, config, task, error, lifeline)
        except run_lock.Running as error:
            say(task, f"node {task.node}: {folder}: {error}")
        except (ConfigError, OSError) as error:
            end_refused(part, error)
    return 1


def end_refused(part: Part, error: Exception) -> None:
    """End a run that could not be trained here."""
    folder, task = part.folder, part.task
    say(task, f"node {task.node}: {error}")
    if task.rank == 0:
        kind = "bad_input" if isinstance(error, ConfigError) else "error"
        words = f"node {task.node}: {error}{others_words(folder, task, str(error))}" if task.scheduled else str(error)
        outcome.end(folder, Failure(kind, words))


def join(config: RunConfig, visible: list[Any], tell: Callable[[str], None]) -> Failure | None:
    """Train the part of a non-head node that was started by hand. Returns why it failed, or None.

    Raises ConfigError, Interrupted.
    """
    with nodes.met(config) as others:
        folder = others.folder()
        tell(f"node {others.names[0]} (node_rank={config.node_rank}): {folder}")
        part = Part(folder, config, Task.local(), config.chosen(visible), 0.0, Lifeline(()), others=others)
        return train(part)


def meet(part: Part, num_gpus: int, stack: ExitStack) -> None:
    """Meet the other nodes. Raises ConfigError if a node lacks something."""
    config, task = part.config, part.task

    def check() -> None:
        if not task.scheduled:  # The launcher has checked this machine.
            return
        task.check(config, num_gpus)
        check_precision(config, part.gpus)
        began = time.monotonic()
        check_verdicts([judge(config.stack, part.gpus, resolve=False, needed=needed_by(config))])
        make_all([config.stack], lambda words: say(task, words), needs([config]))
        part.started += time.monotonic() - began  # not part of the start

    if config.nodes == 1:
        check()
        return
    place = part.folder / task.place if task.scheduled else None
    part.others = stack.enter_context(nodes.met(config, place, task.address(), check))


def others_words(folder: Path, task: Task, message: str) -> str:
    """The other nodes' own output: a node that cannot see the run's folder reports it nowhere else."""
    lines = scheduler_endings.last_printed(folder).splitlines()
    others = [line for line in lines if line.startswith("node ") and not line.startswith(f"node {task.node}:")]
    return "".join(f"; {line}" for line in others if line.partition(": ")[2] not in message)


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
