"""The scheduler's job of a run: `cluster.json` in its folder, written by the submitter.

`ended` becomes true a moment after the run has its result, when its supervisor has written everything.
"""

from __future__ import annotations

import dataclasses
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from conf.schema import ConfigError
from tracking.jobs.node import slurm
from tracking.record import documents, files, run_folder, signature, typed_json

FILE = "cluster.json"
SCRIPT = "job.sbatch"  # what was submitted
JOB_IDS = {"slurm": slurm.JOB_ID, "here": re.compile(r"[\w.-]+/\d+", re.ASCII), "shared": re.compile(r"\d+", re.ASCII)}
CLUSTER_NAME = re.compile(r"^ClusterName\s*=\s*([\w.-]+)", re.MULTILINE)
ASK_SEC = 60.0  # Slurm is asked for its name again after this time, if it did not answer
PRINTED = "slurm.log"  # what Slurm and its commands printed in the job


@dataclass
class Ticket:
    kind: str  # slurm | here, as in conf/cluster; shared: a process beside others on this machine
    job_id: str
    max_requeues: int = 0
    requeues: int = 0  # by followers; Slurm counts its own
    submitted_ms: int = field(default_factory=run_folder.now_ms)
    ended: bool = False  # whether the head node's supervisor has written everything
    signature: str = ""  # proof that this user issued it
    cluster: str = ""  # the Slurm cluster that was local where this was issued; empty if unknown

    @property
    def asked(self) -> str:
        """The job's id as Slurm's commands here need it: with its cluster, if that is not the local one.

        Clusters that share a file system number their jobs independently.
        """
        elsewhere = self.kind == "slurm" and self.cluster and ";" not in self.job_id and self.cluster != local_cluster()
        return f"{self.job_id};{self.cluster}" if elsewhere else self.job_id


@dataclass
class _LocalCluster:
    name: str = ""
    asked_at: float = float("-inf")


_local = _LocalCluster()


def local_cluster() -> str:
    """The name of the cluster that Slurm's commands ask by default; empty if it is not known."""
    if not _local.name and time.monotonic() - _local.asked_at > ASK_SEC:
        _local.asked_at = time.monotonic()
        with suppress(slurm.Away, ConfigError):
            match = CLUSTER_NAME.search(slurm.run(["scontrol", "show", "config"]))
            _local.name = match[1] if match else ""
    return _local.name


def of_slurm(job_id: str, max_requeues: int) -> Ticket:
    """A ticket of a job that was submitted to the cluster in its id, or else to the local one."""
    return Ticket("slurm", job_id, max_requeues, cluster=local_cluster())


def issue(folder: Path, ticket: Ticket) -> Ticket:
    """Write and return the ticket of a job that this process has started. Raises OSError."""
    signed = replace(ticket, signature=signature.sign(_signed(folder, ticket)) or "")
    write(folder, signed)
    return signed


def check_own(folder: Path, ticket: Ticket) -> None:
    """Raise ConfigError unless this user issued the ticket: jobs named by others are left alone."""
    if not signature.verify(_signed(folder, ticket), ticket.signature):
        raise ConfigError(
            f"{folder / FILE}: names job {ticket.job_id}, but was not written by you on this machine. That job is"
            " left alone. Next: if it is yours, use scancel and scontrol yourself"
        )


def _signed(folder: Path, ticket: Ticket) -> list[str]:
    return [run_folder.read_info(folder).uid, ticket.kind, ticket.job_id, *filter(None, [ticket.cluster])]


def write(folder: Path, ticket: Ticket) -> None:
    """Write the ticket. Raises OSError."""
    documents.write_json(folder / FILE, dataclasses.asdict(ticket))


def read(folder: Path) -> Ticket | None:
    """The ticket, or None for a run without a scheduler's job. Raises ValueError for a damaged file."""
    if not files.exists(folder / FILE):
        return None
    made = typed_json.checked(Ticket, documents.read_json(folder / FILE), folder / FILE)
    if made.kind not in JOB_IDS or not JOB_IDS[made.kind].fullmatch(made.job_id):
        raise ValueError(f"{folder / FILE}: {made.kind!r} has no job {made.job_id!r}")
    if made.cluster and not slurm.JOB_ID.fullmatch(f"1;{made.cluster}"):
        raise ValueError(f"{folder / FILE}: {made.cluster!r} is not the name of a cluster")
    return made


def has_ended(folder: Path) -> bool:
    """Whether the run has its result and nothing more will be written. Raises OSError, ValueError."""
    made = read(folder)
    return made is not None and made.ended and run_folder.read_result(folder) is not None


def mark(folder: Path, ended: bool) -> None:
    """Record that the head node's supervisor has ended, or has started again. Raises OSError, ValueError."""
    made = read(folder)
    if made is not None and made.ended != ended:
        write(folder, replace(made, ended=ended))
