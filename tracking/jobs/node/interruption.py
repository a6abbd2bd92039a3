"""Stops a run: on a signal, on Slurm's warning, or when the launcher or the scheduler's daemon is gone."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.jobs.handover import STEP, ForkedWorker, Lifeline, Started
from tracking.jobs.node import outcome, signals, slurm
from tracking.jobs.node.task import Task
from tracking.record import Failure, failures, journal, node_records, run_folder

AGAIN = 75  # exit code of a run that is to be queued again; EX_TEMPFAIL in sysexits.h
WARNED = signal.SIGUSR2  # what `#SBATCH --signal` asks for
PATIENCE_SEC = 30.0  # upper limit for the head node to end its processes
SAVING_SEC = 20.0  # how long a run that is told to stop may save; most schedulers kill after 30 s
WARNED_SEC = 15.0  # part of Slurm's warning time kept for ending and requeueing the job
GONE_SEC = 1.0  # wait for the end of a killed slurmstepd; its processes may get their signal earlier


def handle_warning(config: RunConfig, task: Task) -> None:
    """Stop at Slurm's warning if the run may be requeued; else use all of its time."""
    if may_go_on(config, task):
        signals.raise_on_signals(WARNED)
    else:
        signal.signal(WARNED, signal.SIG_IGN)


def may_go_on(config: RunConfig, task: Task) -> bool:
    """Whether the job may be queued again."""
    return config.cluster.kind == "slurm" and task.restarts < config.cluster.max_requeues


def saves(config: RunConfig) -> bool:
    """Whether the worker saves a checkpoint when it is told to stop."""
    steps = config.checkpoint_every_steps is not None or config.cluster.max_requeues > 0
    return steps and not config.is_program()


def prepared(folder: Path, config: RunConfig) -> dict[str, str]:
    """Further variables of a worker's environment; clears the stop request of an earlier attempt.

    If Slurm tracks processes by their parents, its stop signal reaches the worker, too. The variable makes the worker
    ignore it: the supervisor ends the worker in time.
    """
    with suppress(OSError):
        (folder / run_folder.STOPPING).unlink()
    return {node_records.LEAVES_SIGTERM: "1"} if config.cluster.kind == "slurm" and saves(config) else {}


def let_save(process: Started, folder: Path, config: RunConfig, signum: int = 0, since: int | None = None) -> None:
    """Have a worker that is told to stop save a checkpoint and end, if it makes checkpoints of steps.

    A worker that has not begun to train has nothing to save: the head node's journal has no epoch from the byte `since`
    on. Returns when it has ended, when its time is over, or at a further signal. After Ctrl-C or a closed terminal it
    does not wait.
    """
    if not saves(config) or signum in (signal.SIGINT, signal.SIGHUP):
        return
    if (isinstance(process, ForkedWorker) and process.withdraw()) or (since is not None and not trains(folder, since)):
        return
    sec = max(SAVING_SEC, config.cluster.warn_sec - WARNED_SEC) if signum == WARNED else SAVING_SEC
    request = folder / run_folder.STOPPING
    with suppress(OSError):  # a full disk: there is no room for a checkpoint either
        request.touch()
        deadline = time.monotonic() + sec
        while process.poll() is None and time.monotonic() < deadline and not signals.hurried():
            time.sleep(0.05)
        request.unlink(missing_ok=True)


def trains(folder: Path, since: int) -> bool:
    """Whether the journal has an epoch from the byte `since` on; True if the journal cannot be read."""
    try:
        read = journal.read(folder / run_folder.JOURNAL, since)
        return any(record.kind == "event" and record.key == "epoch_start" for record, _ in read)
    except (OSError, ValueError):
        return True


def end(folder: Path, config: RunConfig, task: Task, error: signals.Interrupted, line: Lifeline) -> int:
    """Report how a stopped run has ended, and return the exit code. Its processes must have ended.

    If Slurm ends or moves the job, the reason is in the job's final state, and the follower reports it.
    """
    gone = line.cut(GONE_SEC if task.scheduled and error.signum == signal.SIGTERM else 0.0)
    if gone is not None:
        return orphaned(folder, task, line, gone)
    facts = slurm.facts(task.job_id) if task.scheduled else {}
    running = facts.get("JobState") in (None, "RUNNING")
    makes_room = running and facts.get("PreemptTime", "None") != "None"  # A requeued job keeps this time.
    if may_go_on(config, task) and (error.signum == WARNED or makes_room):
        say(task, f"node {task.node}: stopped by {error}; the job is queued again")
        return AGAIN
    say(task, f"node {task.node}: stopped by {error}")
    if task.rank == 0 and makes_room:  # Slurm would report a failure, since the process exits before it is killed
        outcome.end(folder, slurm.JobState("PREEMPTED", nodes=task.node).failure(task.job_id))
    elif task.rank == 0 and (running or config.cluster.kind != "slurm"):
        outcome.stopped(folder, error, f"node {task.node}: " if task.scheduled else "")
    return 1


def orphaned(folder: Path, task: Task, line: Lifeline, gone: int) -> int:
    """End a run whose launcher or slurmstepd is gone.

    Without slurmstepd the job is cancelled, because Slurm regards it as running as long as its srun waits.
    """
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
    """The end of a run whose lifeline broke at this descriptor."""
    if gone == STEP:
        return Failure("node_fail", f"node {node}: its slurmstepd was killed")
    return Failure(f"signal:{signal.SIGKILL}", "its launcher was killed")


def stopped(line: Lifeline, error: signals.Interrupted) -> Failure:
    """The failure that this node reports to the others when it is stopped."""
    node = node_records.name()
    gone = line.cut(GONE_SEC) if line.descriptors else None
    if gone is None:
        return Failure(f"signal:{error.signum}", f"node {node}: stopped by {error}")
    failure = cut_off(gone, node)
    return failure if gone == STEP else replace(failure, message=f"node {node}: {failure.message}")


def say(task: Task, words: str) -> None:
    """Print to the scheduler's log of the job; without a scheduler, the run's result says it."""
    if task.scheduled:
        with suppress(OSError):  # a slurmstepd that is gone reads nothing
            print(words, flush=True)
