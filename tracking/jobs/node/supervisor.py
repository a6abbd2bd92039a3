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
    other_node,
    outcome,
    scheduler_endings,
    signals,
)
from tracking.jobs.node.interruption import say
from tracking.jobs.node.task import Part, Task
from tracking.machine.environment import nvml, processes
from tracking.machine.stacks import check_verdicts, judge, make_all, needed_by, needs
from tracking.record import Failure, node_records, run_folder, run_lock
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
            return other_node.run(part) if task.rank else head_node.run(part)
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
        return other_node.train(part)


def meet(part: Part, num_gpus: int, stack: ExitStack) -> None:
    """Check this node, and meet the others. Raises ConfigError if the run cannot train on a node."""
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
    """The other nodes' own output. A node that cannot see the run's folder can report that only there."""
    lines = scheduler_endings.last_printed(folder).splitlines()
    others = [line for line in lines if line.startswith("node ") and not line.startswith(f"node {task.node}:")]
    return "".join(f"; {line}" for line in others if line.partition(": ")[2] not in message)
