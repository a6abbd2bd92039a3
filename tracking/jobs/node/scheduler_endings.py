"""The end of a run whose nodes left no result, from the scheduler's state of its job."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.jobs.node import outcome, slurm, ticket
from tracking.jobs.node.slurm import JobState
from tracking.jobs.node.task import PLACE
from tracking.jobs.node.ticket import Ticket
from tracking.record import Failure, Result, Running, failures, files, run_folder

ASK_SEC = 10.0  # how long Slurm's answer is reused
NODE = re.compile(r"Node failure on (\S+)")  # srun's words
# Slurm's words for a step that ran out of memory; the job itself is FAILED, because its script exits with the step's
# code.
OUT_OF_MEMORY = re.compile(r"oom-kill event|exceeded memory limit|: Out Of Memory")


class Answers:
    """Slurm's states of the jobs of all runs in a folder, queried together, at most once in ASK_SEC."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._states: dict[str, JobState | None] = {}
        self._away = ""

    def of(self, folder: Path, job_id: str) -> JobState | None:
        """The state of the job of the run in `folder`. Raises Away."""
        if time.monotonic() - self._asked_at > ASK_SEC or job_id not in self._states:
            folders = [path.parent for path in folder.parent.glob(f"*/{ticket.FILE}")]
            others = [job_of(path) for path in folders if not files.exists(path / run_folder.RESULT)]
            job_ids = dict.fromkeys([job_id, *filter(None, others)])
            self._away, states = "", {}
            try:
                states = slurm.states(list(job_ids))
            except slurm.Away as error:
                self._away = str(error)
            self._states = {known: states.get(known) for known in job_ids}
            self._asked_at = time.monotonic()
        if self._away:
            raise slurm.Away(self._away)
        return self._states[job_id]


_answers = Answers()


def job_of(folder: Path) -> str:
    """The id of the run's Slurm job; empty without one, or if it cannot be read."""
    with suppress(OSError, ValueError):  # reported with its own folder
        made = ticket.read(folder)
        return made.asked if made and made.kind == "slurm" else ""
    return ""


def unknown(job_id: str) -> Failure:
    return Failure("error", f"Slurm no longer knows job {job_id}, and without accounting nothing says how it ended")


def explained(folder: Path, job_id: str, state: JobState | None) -> Failure:
    """Why the run of an ended job has no result, from Slurm's state of the job and the job's output."""
    printed = last_printed(folder)
    if state and state.word == "FAILED" and OUT_OF_MEMORY.search(printed):
        state = replace(state, word="OUT_OF_MEMORY")
    failure = state.failure(job_id) if state else unknown(job_id)
    failure.traceback = printed or failures.last_words(folder)
    words = failure.traceback.strip().splitlines()
    if failure.kind == "node_fail" and (match := NODE.search(failure.traceback)):
        failure.message += f": {match[1]}"
    if failure.kind == "error" and words:
        of_nodes = [line for line in words if line.startswith("node ")]
        failure.message += f"; it last printed: {(of_nodes or words)[-1]}"
    return failure


def end(folder: Path, config: RunConfig, job_id: str, state: JobState | None) -> Result:
    """Write the run's result if its nodes left none, and return it."""
    failure = explained(folder, job_id, state)
    try:
        unexplained = None if run_folder.read_result(folder) else failure
        with suppress(OSError):
            outcome.record_given_up(folder, config, unexplained)
        result = outcome.end(folder, unexplained)
    except (OSError, ValueError):  # the folder is gone or damaged: other jobs continue
        return Result("failed", failure=failure)
    for name in files.names(folder):  # files that killed nodes have left
        if name.startswith(PLACE):
            shutil.rmtree(folder / name, ignore_errors=True)
    return result


def requeued(folder: Path, made: Ticket, state: JobState | None) -> bool:
    """Requeue a job that lost its nodes, up to its limit. False if that was not needed or failed."""
    if state is None or state.word not in slurm.LOST or made.requeues >= made.max_requeues:
        return False
    try:
        ticket.check_own(folder, made)
        slurm.requeue(made.asked)
    except (slurm.Away, ConfigError):
        return False
    made.requeues += 1
    ticket.write(folder, made)
    return True


def failure_of(folder: Path) -> Failure | None:
    """Why a scheduled run has ended; None for a run without a scheduler.

    Raises Running while the job may run, or if the scheduler does not answer.
    """
    made = ticket.read(folder) or issued_later(folder)
    if made is None or made.kind != "slurm":
        return None
    try:
        state = _answers.of(folder, made.asked)
    except slurm.Away as error:
        raise Running(f"Slurm's job {made.asked} has it, and Slurm does not answer: {error}") from None
    if state is not None and state.active:
        raise Running(f"Slurm's job {made.job_id} has it, and {state}", certain=True)
    return explained(folder, made.job_id, state)


def issued_later(folder: Path) -> Ticket | None:
    """Issue the ticket of a job whose submitter was killed before it could; None without a job.

    Raises Running if Slurm does not answer.
    """
    script = folder / ticket.SCRIPT
    if not files.exists(script):
        return None
    cluster = run_folder.read_config(folder).cluster
    try:
        job_id = slurm.job_of(script, clusters_in(cluster.lines))
    except slurm.Away as error:
        raise Running(f"it may have been submitted to Slurm, which does not answer: {error}") from None
    return ticket.issue(folder, ticket.of_slurm(job_id, cluster.max_requeues)) if job_id else None


def clusters_in(lines: Sequence[str]) -> list[str]:
    """The clusters that options of sbatch name; [""], the local one, if they name none."""
    names = re.search(r"(?:--clusters[= ]|-M ?)([\w.,-]+)", " ".join(lines))
    return names[1].split(",") if names else [""]


def last_printed(folder: Path) -> str:
    """The end of what Slurm and its commands printed in the job."""
    path = folder / ticket.PRINTED
    if not files.exists(path):
        return ""
    with files.opened(path, "rb") as file:
        return str(file.read()[-failures.LAST_WORDS_BYTES :].decode(errors="replace"))
