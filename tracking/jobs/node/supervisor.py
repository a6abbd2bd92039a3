"""A node's part of a run that a scheduler has started. It trains, samples the node, and knows nothing of MLflow."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base import installation
from tracking.jobs.node import endings, lifeline, node_supervision, shares, signals, slurm, supervision, ticket
from tracking.jobs.node.lifeline import Lifeline
from tracking.jobs.node.rendezvous import nodes
from tracking.jobs.node.rendezvous.nodes import Nodes
from tracking.jobs.node.reopening import reopen
from tracking.jobs.node.task import SlurmTask
from tracking.jobs.node.ticket import Ticket
from tracking.machine.stacks import check_verdicts, judge, make_all, needed_by, needs
from tracking.record import Failure, Journal, attempts, checkpoints, journal, run_folder, run_lock
from tracking.record import nodes as node_names
from tracking.request.checks import check_precision

AGAIN = 75  # the exit code where the run is to be queued again; sysexits.h calls it EX_TEMPFAIL
WARNED = signal.SIGUSR2  # what `#SBATCH --signal` asks for
TAG = "cluster.job_id"
MIRROR = installation.module("tracking.jobs.follow.mirror_process")
PATIENCE_SEC = 30.0  # By then the first node has ended all that it runs.
GONE_SEC = 1.0  # A slurmstepd that was killed is gone by then; what it ran may be told to stop earlier.
SUBMITTED_SEC = 120.0  # By then who submitted the job has let go of its folder.


def supervise(
    folder: Path, gpus: Sequence[Any], worker_command: Callable[[RunConfig, Path], Any], started: float
) -> int:
    """Train this node's part of the run in `folder`; the exit code, AGAIN where the job is to be queued again.

    `gpus` are those visible here; `started` is when this process began, on the monotonic clock.
    """
    signals.raise_on_signals()
    config = run_folder.read_config(folder)
    line = Lifeline.of(config.cluster.kind)
    task = SlurmTask.read() if config.cluster.kind != "none" else SlurmTask.alone()
    heed_warning(config, task)
    config.stack.container.options += shares.engine_options(config.stack.container.engine)
    os.environ[node_names.NAME] = task.node
    config = dataclasses.replace(config, node_rank=task.rank)
    used = config.chosen(gpus)
    uuids = [gpu.uuid for gpu in used]
    try:
        line.watch()
        with ExitStack() as stack:
            held = own(folder, stack) if task.rank == 0 else -1
            began = time.monotonic()
            trouble = make_stack(config, used)
            started += time.monotonic() - began  # no part of what precedes the clock
            others = met(config, folder, task, gpus, stack, trouble)
            if task.rank:
                ended = functools.partial(stopped, line)
                return other(folder, config, worker_command, uuids, others, ended)
            return first(folder, config, task, worker_command, uuids, others, started, held)
    except signals.Interrupted as error:
        return interrupted(folder, config, task, error.signum, line)
    except run_lock.Running as error:
        say(f"node {task.node}: {folder}: {error}")
        return 1
    except (ConfigError, OSError) as error:
        kind = "bad_input" if isinstance(error, ConfigError) else "error"
        say(f"node {task.node}: {error}")
        if task.rank == 0:
            supervision.end(folder, Failure(kind, f"node {task.node}: {error}{others_words(folder, task, str(error))}"))
        return 1


def own(folder: Path, stack: ExitStack) -> int:
    """Take the run's folder over from who has made it; the descriptor of its lock. Raises Running, OSError."""
    handed_over = run_lock.inherited(folder)
    return stack.enter_context(run_lock.take(folder, inherited=handed_over, patience_sec=SUBMITTED_SEC)).descriptor


def others_words(folder: Path, task: SlurmTask, said: str) -> str:
    """What the other nodes have printed of themselves; one that does not see the run's folder says it nowhere else."""
    lines = endings.last_printed(folder).splitlines()
    others = [line for line in lines if line.startswith("node ") and not line.startswith(f"node {task.node}:")]
    return "".join(f"; {line}" for line in others if line.partition(": ")[2] not in said)


def make_stack(config: RunConfig, gpus: Sequence[Any]) -> ConfigError | None:
    """Make or fetch here what the run's stack needs; why it cannot run on this node, if that is so."""
    try:
        check_verdicts([judge(config.stack, gpus, resolve=False, needed=needed_by(config))])
        make_all([config.stack], say, needs([config]))
    except ConfigError as error:
        return error
    return None


def met(
    config: RunConfig, folder: Path, task: SlurmTask, gpus: Sequence[Any], stack: ExitStack, trouble: ConfigError | None
) -> Nodes | None:
    """The other nodes once all have met; None for a run on one. Raises ConfigError where a node lacks something, or has
    `trouble` with its stack."""

    def check() -> None:
        task.check(config, len(gpus))
        check_precision(config, gpus)
        if trouble:
            raise trouble

    if config.nodes == 1:
        check()
        return None
    return stack.enter_context(nodes.met(config, folder / task.place, task.address(), check))


def first(
    folder: Path, config: RunConfig, task: SlurmTask, worker_command: Callable[[RunConfig, Path], Any],
    uuids: list[str], others: Nodes | None, started: float, held: int,
) -> int:  # fmt: skip
    Journal(folder / run_folder.JOURNAL).close()  # a last line that lacks its newline alone is whole with it
    if run_folder.read_result(folder) is not None and not begun(folder):
        say(f"{folder}: the run was ended before it began")
        return 1
    if begun(folder):
        reopen(folder, checkpoints.newest(folder), "requeued")
    if task.job_id and ticket.read(folder) is None:  # Its submitter was killed before it could say so.
        ticket.issue(folder, Ticket(config.cluster.kind, task.job_id, config.cluster.max_requeues))
    ticket.mark(folder, ended=False)
    if task.job_id:
        log = Journal(folder / run_folder.JOURNAL)
        log.tags({TAG: task.job_id})
        log.close()
    result, mirror = None, start_mirror(folder, config)
    try:
        if others:
            others.announce(folder)
            config = dataclasses.replace(config, rendezvous=others.rendezvous)
        command = worker_command(config, folder)
        result = supervision.run_job(folder, config, command, uuids, lambda record: None, started, held, others)
    finally:
        if others:
            others.end(result.failure if result else None)
            others.wait_for_ends()
        with suppress(OSError):  # a full disk: who follows hears of the end from the scheduler
            ticket.mark(folder, ended=result is not None)
        if mirror and result:
            with suppress(subprocess.TimeoutExpired):
                mirror.wait(config.tracking.upload_wait_sec + PATIENCE_SEC)
    return 1 if result.failure else 0


def start_mirror(folder: Path, config: RunConfig) -> subprocess.Popen[bytes] | None:
    """What writes to MLflow from this node, where it is to; it ends with this process."""
    if config.cluster.mirror != "node" or config.tracking.offline:
        return None
    return subprocess.Popen([sys.executable, "-P", "-m", MIRROR, str(folder)], stdin=subprocess.PIPE)


def other(
    folder: Path, config: RunConfig, worker_command: Callable[[RunConfig, Path], Any], uuids: list[str],
    others: Nodes | None, ended: Callable[[signals.Interrupted], Failure],
) -> int:  # fmt: skip
    assert others is not None
    node = node_names.name()
    others.folder()
    config = dataclasses.replace(config, rendezvous=others.rendezvous)
    try:
        command = worker_command(config, folder)
    except ConfigError as error:
        others.end(Failure("bad_input", f"node {node}: {error}"))
        raise
    failure = node_supervision.run_node(folder, config, command, uuids, others, ended)
    say(f"node {node}: {failure.message}" if failure else f"node {node}: its part has ended")
    return 1 if failure else 0


def heed_warning(config: RunConfig, task: SlurmTask) -> None:
    """Stop at Slurm's warning where the run may be queued again; else it has all of its time."""
    if may_go_on(config, task):
        signals.raise_on_signals(WARNED)
    else:
        signal.signal(WARNED, signal.SIG_IGN)


def may_go_on(config: RunConfig, task: SlurmTask) -> bool:
    """Whether the job may be queued again."""
    return config.cluster.kind == "slurm" and task.restarts < config.cluster.max_requeues


def stopped(line: Lifeline, error: signals.Interrupted) -> Failure:
    """What a node but the first tells the others when it was told to stop."""
    gone = line.cut(GONE_SEC)
    return node_supervision.stopped(error) if gone is None else line.failure(gone, node_names.name())


def orphaned(folder: Path, task: SlurmTask, line: Lifeline, gone: int) -> int:
    """End the run whose launcher is gone; and the job whose slurmstepd is, which Slurm takes for running as long as
    srun waits for that."""
    failure = line.failure(gone, task.node)
    say(failure.message)
    if task.rank == 0:
        supervision.end(folder, failure)
    if gone != lifeline.STEP:
        return 1
    deadline = time.monotonic() + PATIENCE_SEC
    while run_folder.read_result(folder) is None and time.monotonic() < deadline:  # the first node says why
        time.sleep(0.2)
    with suppress(slurm.Away, ConfigError):
        slurm.cancel([task.job_id])
    return 1


def say(words: str) -> None:
    """Print for who reads what Slurm keeps of the job; a slurmstepd that is gone reads nothing."""
    with suppress(OSError):
        print(words, flush=True)


def begun(folder: Path) -> bool:
    """Whether a worker was started since the run was made, or was last taken up again."""
    keys = [event.key for event in journal.events(folder / run_folder.JOURNAL)]
    return "init_start" in keys[len(keys) - keys[::-1].index(attempts.RESUME) if attempts.RESUME in keys else 0 :]


def interrupted(folder: Path, config: RunConfig, task: SlurmTask, signum: int, line: Lifeline) -> int:
    """Say how a run that was told to stop has ended; the exit code. No process of it is left.

    Where Slurm ends or moves the job, its state tells why when it has ended: then who follows says it.
    """
    name = signal.Signals(signum).name
    gone = line.cut(GONE_SEC if task.job_id and signum == signal.SIGTERM else 0.0)
    if gone is not None:
        return orphaned(folder, task, line, gone)
    facts = slurm.facts(task.job_id) if task.job_id else {}
    running = facts.get("JobState") in (None, "RUNNING")
    makes_room = running and facts.get("PreemptTime", "None") != "None"  # A job that was queued again keeps it.
    if may_go_on(config, task) and (signum == WARNED or makes_room):
        say(f"node {task.node}: stopped by {name}; the job is queued again")
        return AGAIN
    say(f"node {task.node}: stopped by {name}")
    if task.rank == 0 and makes_room:  # Slurm would call it failed, since it goes before it is killed
        supervision.end(folder, slurm.JobState("PREEMPTED", nodes=task.node).failure(task.job_id))
    elif task.rank == 0 and (running or config.cluster.kind != "slurm"):
        supervision.end(folder, Failure(f"signal:{signum}", f"node {task.node}: stopped by {name}"))
    return 1
