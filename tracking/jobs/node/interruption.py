"""What a supervisor does when it is told to stop, or when its launcher or its scheduler's daemon is gone."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.jobs.handover import STEP, Lifeline
from tracking.jobs.node import outcome, signals, slurm
from tracking.jobs.node.task import Task
from tracking.record import Failure, failures, nodes, run_folder

AGAIN = 75  # the exit code where the run is to be queued again; sysexits.h calls it EX_TEMPFAIL
WARNED = signal.SIGUSR2  # what `#SBATCH --signal` asks for
PATIENCE_SEC = 30.0  # By then the head node has ended all that it runs.
GONE_SEC = 1.0  # A slurmstepd that was killed is gone by then; what it ran may be told to stop earlier.


def heed_warning(config: RunConfig, task: Task) -> None:
    """Stop at Slurm's warning where the run may be queued again; else it has all of its time."""
    if may_go_on(config, task):
        signals.raise_on_signals(WARNED)
    else:
        signal.signal(WARNED, signal.SIG_IGN)


def may_go_on(config: RunConfig, task: Task) -> bool:
    """Whether the job may be queued again."""
    return config.cluster.kind == "slurm" and task.restarts < config.cluster.max_requeues


def end(folder: Path, config: RunConfig, task: Task, error: signals.Interrupted, line: Lifeline) -> int:
    """Say how a run that was told to stop has ended; the exit code. No process of it is left.

    Where Slurm ends or moves the job, its state tells why when it has ended: then who follows says it.
    """
    gone = line.cut(GONE_SEC if task.scheduled and error.signum == signal.SIGTERM else 0.0)
    if gone is not None:
        return orphaned(folder, task, line, gone)
    facts = slurm.facts(task.job_id) if task.scheduled else {}
    running = facts.get("JobState") in (None, "RUNNING")
    makes_room = running and facts.get("PreemptTime", "None") != "None"  # A job that was queued again keeps it.
    if may_go_on(config, task) and (error.signum == WARNED or makes_room):
        say(task, f"node {task.node}: stopped by {error}; the job is queued again")
        return AGAIN
    say(task, f"node {task.node}: stopped by {error}")
    if task.rank == 0 and makes_room:  # Slurm would call it failed, since it goes before it is killed
        outcome.end(folder, slurm.JobState("PREEMPTED", nodes=task.node).failure(task.job_id))
    elif task.rank == 0 and (running or config.cluster.kind != "slurm"):
        outcome.stopped(folder, error, f"node {task.node}: " if task.scheduled else "")
    return 1


def orphaned(folder: Path, task: Task, line: Lifeline, gone: int) -> int:
    """End the run whose launcher is gone; and the job whose slurmstepd is, which Slurm takes for running as long as
    srun waits for that."""
    failure = cut_off(gone, task.node)
    say(task, failure.message)
    if task.rank == 0:
        failure.traceback = failures.last_words(folder)
        with suppress(OSError, ValueError):
            outcome.record_given_up(folder, run_folder.read_config(folder), failure)
        outcome.end(folder, failure)
    if gone != STEP:
        return 1
    deadline = time.monotonic() + PATIENCE_SEC
    while run_folder.read_result(folder) is None and time.monotonic() < deadline:  # the head node says why
        time.sleep(0.2)
    with suppress(slurm.Away, ConfigError):
        slurm.cancel([task.job_id])
    return 1


def cut_off(gone: int, node: str) -> Failure:
    """How a run has ended whose lifeline was cut at that descriptor."""
    if gone == STEP:
        return Failure("node_fail", f"node {node}: its slurmstepd was killed")
    return Failure(f"signal:{signal.SIGKILL}", "its launcher was killed")


def stopped(line: Lifeline, error: signals.Interrupted) -> Failure:
    """What this node tells the others when it was told to stop."""
    node = nodes.name()
    gone = line.cut(GONE_SEC) if line.descriptors else None
    if gone is None:
        return Failure(f"signal:{error.signum}", f"node {node}: stopped by {error}")
    failure = cut_off(gone, node)
    return failure if gone == STEP else replace(failure, message=f"node {node}: {failure.message}")


def say(task: Task, words: str) -> None:
    """Print for who reads what the scheduler keeps of the job; without a scheduler, the run's result says it."""
    if task.scheduled:
        with suppress(OSError):  # a slurmstepd that is gone reads nothing
            print(words, flush=True)
