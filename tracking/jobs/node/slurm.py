"""Slurm, by its own commands: submit, ask about all jobs together, cancel, queue again.

A job's id is what `sbatch --parsable` prints: its number, and then `;CLUSTER` if sbatch was given --clusters. Further
commands name that cluster (-M), because by default they ask the local one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conf.schema import ConfigError
from tracking.record import Failure

COMMAND_SEC = 60.0  # how long one of Slurm's commands may take to reach its controller
JOB_ID = re.compile(
    r"\d{1,18}(;[\w.-]{1,200})?", re.ASCII
)  # Anybody may have written the folder: an id must not be read as an option.
# The states in which a job may still run, or run again.
ACTIVE = {
    "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESV_DEL_HOLD",
}  # fmt: skip
# The kind of failure of a run that Slurm ended, and what Slurm did.
KINDS = {
    "TIMEOUT": ("timeout", "its time limit, cluster.time, was over"),
    "DEADLINE": ("timeout", "its deadline was over"),
    "OUT_OF_MEMORY": ("oom", "it used more memory than it was given (cluster.mem)"),
    "NODE_FAIL": ("node_fail", "a node of it failed"),
    "PREEMPTED": ("preempted", "another job took its nodes"),
    "CANCELLED": ("cancelled", "it was cancelled"),
}
LOST = {"PREEMPTED", "NODE_FAIL"}  # endings that the run did not cause


# Faults that pass: Slurm does not answer now, or the user has as many jobs in the queue as the site allows. Slurm also
# says "job submit limit" for limits of a job's size and time; newer versions name the limit first.
PASSING = re.compile(
    r"Unable to contact slurm controller|onnection|imed out|try again|emporarily|Zero Bytes were transmitted"
    r"|standby mode|I/O error writing script|uthentication|[Mm]unge|(Assoc|QOS)\w*SubmitJob"
    r"|\A(?!.*\b(Assoc|QOS)[A-Z]).*job submit limit",
    re.DOTALL,
)


class Away(Exception):
    """Slurm does not answer or takes no jobs now; it will later."""


@dataclass(frozen=True)
class JobState:
    """Slurm's state of a job, the reason why it waits, and its nodes."""

    word: str
    reason: str = ""
    nodes: str = ""
    what: str = "Slurm's job"
    signum: int = 0  # the signal that killed its process; 0 if unknown

    @property
    def active(self) -> bool:
        return self.word in ACTIVE

    def __str__(self) -> str:
        if self.word == "PENDING":
            return f"waits in the queue ({self.reason})" if self.reason not in ("", "None") else "waits in the queue"
        return f"{self.word.lower()} on {self.nodes}" if self.nodes and self.active else self.word.lower()

    def failure(self, job_id: str) -> Failure:
        """Why the run of an ended job left no result."""
        if self.signum:
            return Failure(
                f"signal:{self.signum}", f"{self.what} {job_id} was killed by {signal.Signals(self.signum).name}"
            )
        kind, what = KINDS.get(self.word, ("error", f"it ended as {self.word} and left no result"))
        on = f" on {self.nodes}" if self.nodes else ""
        return Failure(kind, f"{self.what} {job_id}{on}: {what}")


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a job inherits. A surrounding job's variables and MLflow's credentials are left out."""
    return {
        name: value
        for name, value in environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SLURMD_", "SBATCH_", "MLFLOW_", "_MLFLOW_"))
    }


def check_commands() -> None:
    """Raise ConfigError if Slurm's commands are missing."""
    if not shutil.which("sbatch"):
        raise ConfigError(
            "cluster=slurm: sbatch is not on the PATH. Next: log in to a node of the cluster, or give cluster=none"
        )


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Run one of Slurm's commands and return its output. Ctrl-C does not interrupt it.

    Raises ConfigError if Slurm refuses, Away for a fault that passes.
    """
    try:
        ended = subprocess.run(
            list(command), capture_output=True, text=True, timeout=COMMAND_SEC, env=env, check=False,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Away(f"{command[0]}: {error}") from None
    if ended.returncode == 0:
        return ended.stdout
    words = ended.stderr.strip() or ended.stdout.strip()
    if PASSING.search(words):
        raise Away(words)
    raise ConfigError(words.removeprefix("sbatch: error: "))


def submit(script: Path, options: Sequence[str] = (), mirrors: bool = False) -> str:
    """Submit a script and return its job's id. `mirrors`: the job writes to MLflow with this user's credentials."""
    credentials = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")} if mirrors else {}
    printed = run(["sbatch", "--parsable", *options, str(script)], environment() | credentials).strip()
    if not JOB_ID.fullmatch(printed):
        raise ConfigError(
            f"sbatch printed {printed[:200]!r} in place of a job's id. Next: see `squeue --me` for the job"
        )
    return printed


def number(job_id: str) -> str:
    """A job's number in its cluster."""
    return job_id.partition(";")[0]


def by_cluster(job_ids: Sequence[str]) -> dict[str, list[str]]:
    """The ids by cluster; the local cluster has an empty name."""
    clusters: dict[str, list[str]] = {}
    for job_id in job_ids:
        clusters.setdefault(job_id.partition(";")[2], []).append(job_id)
    return clusters


def of_cluster(command: str, cluster: str, *arguments: str) -> list[str]:
    """One of Slurm's commands, to the controller of that cluster."""
    return [command, *(["-M", cluster] if cluster else []), *arguments]


def states(job_ids: Sequence[str]) -> dict[str, JobState]:
    """The states of the jobs that Slurm still knows, by one query to each cluster's controller. Raises Away."""
    known: dict[str, JobState] = {}
    for cluster, ids in by_cluster(job_ids).items():
        known |= _of_queue(ids, cluster)
        if missing := [job_id for job_id in ids if job_id not in known]:
            known |= _of_accounting(missing, cluster)
    return known


def _of_queue(job_ids: Sequence[str], cluster: str = "") -> dict[str, JobState]:
    command = of_cluster("squeue", cluster, "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%N")
    try:
        printed = run(command)
    except ConfigError as error:
        raise Away(str(error)) from None
    rows = {row[0]: row for line in printed.splitlines() if len(row := line.split("|", 3)) == 4}
    known = {job_id: rows[number(job_id)] for job_id in job_ids if number(job_id) in rows}
    return {job_id: JobState(row[1], row[2], row[3]) for job_id, row in known.items()}


def _of_accounting(job_ids: Sequence[str], cluster: str = "") -> dict[str, JobState]:
    """slurmdbd's states of jobs that have left the queue; empty without accounting. Raises Away."""
    if not shutil.which("sacct"):
        return {}
    options = ["--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,State,NodeList"]
    options.append(f"--jobs={','.join(map(number, job_ids))}")
    try:
        printed = run(of_cluster("sacct", cluster, *options))
    except ConfigError as error:
        if "accounting storage is disabled" in str(error):
            return {}
        raise Away(str(error)) from None
    rows = {row[0]: row for line in printed.splitlines() if len(row := line.split("|", 2)) == 3}
    known = {job_id: rows[number(job_id)] for job_id in job_ids if number(job_id) in rows}
    # A job that was cancelled is CANCELLED by UID.
    return {job_id: JobState((row[1].split() or ["UNKNOWN"])[0], nodes=row[2]) for job_id, row in known.items()}


def job_of(script: Path, clusters: Sequence[str] = ("",)) -> str | None:
    """The id of this user's last job that was submitted with this script, while Slurm knows it. Raises Away."""
    for cluster in clusters:
        try:
            printed = run(of_cluster("squeue", cluster, "--me", "--noheader", "--states=all", "--format=%i|%o"))
        except ConfigError as error:
            raise Away(str(error)) from None
        rows = [line.partition("|") for line in printed.splitlines()]
        ids = [job_id for job_id, _, command in rows if command == str(script) and JOB_ID.fullmatch(job_id)]
        if ids:
            last = max(ids, key=int)
            return f"{last};{cluster}" if cluster else last
    return None


def cancel(job_ids: Sequence[str]) -> None:
    """Cancel these jobs. After it has asked every cluster, raises Away, or ConfigError if one refuses."""
    failure: Away | ConfigError | None = None
    for cluster, ids in by_cluster(job_ids).items():
        try:
            run(of_cluster("scancel", cluster, *map(number, ids)))
        except (Away, ConfigError) as error:
            failure = error
    if failure:
        raise failure


def requeue(job_id: str) -> None:
    """Queue a job again. Raises Away, and ConfigError if Slurm refuses."""
    run(of_cluster("scontrol", job_id.partition(";")[2], "requeue", number(job_id)))


def facts(job_id: str) -> dict[str, str]:
    """The fields that `scontrol show job` prints; {} if it prints nothing."""
    try:
        printed = run(["scontrol", "--oneliner", "show", "job", job_id])
    except (ConfigError, Away):
        return {}
    return dict(word.split("=", 1) for word in printed.split() if "=" in word)


def node_address(node: str) -> str:
    """The address by which Slurm reaches a node; its name if Slurm has no address."""
    try:
        printed = run(["scontrol", "--oneliner", "show", "node", node])
    except (ConfigError, Away):
        return node
    return next((word.partition("=")[2] for word in printed.split() if word.startswith("NodeAddr=")), node)


def test(options: Sequence[str]) -> None:
    """Raise ConfigError if Slurm would refuse a job with these options, Away for a fault that passes."""
    run(["sbatch", "--test-only", *options, "--wrap=true"], environment())
