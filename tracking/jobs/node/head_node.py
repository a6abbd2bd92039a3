"""The head node's part of a run: it writes the run's result, journal and log."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tracking.base import installation
from tracking.jobs.node import interruption, outcome, signals, ticket, worker_process
from tracking.jobs.node.interruption import say
from tracking.jobs.node.nodes import NodeFailed
from tracking.jobs.node.outcome import reopen
from tracking.jobs.node.task import Part
from tracking.jobs.worker_command import worker_command
from tracking.machine.environment import processes
from tracking.machine.usage import CoTenants
from tracking.measure import kernels
from tracking.measure.bottleneck import explain
from tracking.record import Failure, Journal, Result, attempts, checkpoints, failures, journal, run_folder
from tracking.request.node_options import jobs_on_the_same_machine

TAG = "cluster.job_id"
MIRROR = installation.module("tracking.jobs.follow.mirror_process")
MIRROR_SEC = 30.0  # longest wait for the mirror's end beyond its upload_wait_sec


def run(part: Part) -> int:
    """Train the run to its result. Returns the exit code. Raises ConfigError, Interrupted."""
    folder, task, others = part.folder, part.task, part.others
    if task.scheduled and not taken_up(part):
        return 1
    result, failure, mirror = None, None, start_mirror(part)
    try:
        if others:
            others.announce(folder)
            part.config = dataclasses.replace(part.config, rendezvous=others.rendezvous)
        result = train(part)
        failure = result.failure
    except signals.Interrupted as error:
        failure = interruption.stopped(part.lifeline, error) if others else None
        raise
    finally:
        if others:
            others.end(failure)
            others.wait_for_ends()
        with suppress(OSError):  # a full disk: followers learn the end from the scheduler
            ticket.mark(folder, ended=result is not None)
        if mirror and result:
            with suppress(subprocess.TimeoutExpired):
                mirror.wait(part.config.tracking.upload_wait_sec + MIRROR_SEC)
    return 1 if failure else 0


def taken_up(part: Part) -> bool:
    """Prepare the folder for this attempt of a scheduled run; False if it finished, or was ended before it began."""
    folder, task = part.folder, part.task
    Journal(folder / run_folder.JOURNAL).close()  # completes a last line that lacks only its newline
    result = run_folder.read_result(folder)
    if result is not None and (result.status == "finished" or not begun(folder)):
        say(task, f"{folder}: the run has ended already")
        return False
    if begun(folder):
        reopen(folder, checkpoints.newest(folder), "requeued")
    if ticket.read(folder) is None:  # Its submitter was killed before it could write the ticket.
        made = ticket.of_slurm(task.job_id, part.config.cluster.max_requeues)
        ticket.issue(folder, dataclasses.replace(made, kind=part.config.cluster.kind))
    ticket.mark(folder, ended=False)
    log = Journal(folder / run_folder.JOURNAL)
    log.tags({TAG: task.job_id})
    log.close()
    return True


def begun(folder: Path) -> bool:
    """Whether a worker was started since the run was made or last resumed."""
    keys = [event.key for event in journal.events(folder / run_folder.JOURNAL)]
    return "init_start" in keys[len(keys) - keys[::-1].index(attempts.RESUME) if attempts.RESUME in keys else 0 :]


def train(part: Part) -> Result:
    """Train the run and write its result, success or failure. Raises Interrupted once no process is left."""
    folder, config, others = part.folder, part.config, part.others
    command = worker_command(config, folder)
    # Processes in a container, and those of another node on this host, are not children of this process. They are found
    # by the folder in their commands.
    marks = [str(folder.absolute())] if command.contained or others else []
    known = jobs_on_the_same_machine(config)
    co_tenants = CoTenants(part.gpu_uuids, launcher=part.launcher, marks=marks, known=known)
    kills = processes.oom_kills()
    waited = time.monotonic() - part.started
    try:
        process = worker_process.run(part, command, co_tenants, since_command_sec=waited)
        failure = failures.unexplained(folder, process, command.contained)
        if others:
            written = run_folder.read_result(folder)
            own_failure = failure or (written.failure if written else None)
            cause = others.cause(own_failure)
            failure = failure if cause is own_failure else cause
    except NodeFailed as error:
        failure = error.failure
    except worker_process.TimedOut as error:
        failure = Failure(error.kind, str(error))
    except Exception as error:  # a full disk, a bug of ours
        failure = failures.of_launcher(error)
    if processes.oom_kills() > kills:
        failure = failures.short_of_memory(folder, failure)
    with suppress(OSError):  # a full disk: comparisons do without it
        outcome.record_given_up(folder, config, failure)
    result = outcome.end(folder, failure, co_tenants.tag(), explain(folder, co_tenants.tag()))
    if others is None:  # workers of other nodes may still write there
        kernels.remove_scratch(folder)
    outcome.describe(folder)
    return result


def start_mirror(part: Part) -> subprocess.Popen[bytes] | None:
    """The mirror that writes to MLflow from this node, if the run wants one; it ends with this process."""
    if part.config.cluster.mirror != "node" or part.config.tracking.offline:
        return None
    return subprocess.Popen([sys.executable, "-P", "-m", MIRROR, str(part.folder)], stdin=subprocess.PIPE)
