"""What a run's folder says of the job that runs it elsewhere: `cluster.json`, written by who submits.

A run has its result a moment before its supervisor has said its last, which is `ended`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracking.run import documents, files, run_folder

FILE = "cluster.json"
SCRIPT = "job.sbatch"  # what was submitted
PRINTED = "slurm.log"  # what Slurm and its commands printed in the job


@dataclass
class Ticket:
    kind: str  # slurm | here, as in conf/cluster; shared: a process beside others on this machine
    job_id: str
    max_requeues: int = 0
    requeues: int = 0  # by who follows; Slurm counts its own
    submitted_ms: int = field(default_factory=run_folder.now_ms)
    ended: bool = False  # whether the first node's supervisor has written all that it will


def write(folder: Path, ticket: Ticket) -> None:
    """Raises OSError."""
    documents.write_json(folder / FILE, dataclasses.asdict(ticket))


def read(folder: Path) -> Ticket | None:
    """None for a run that no scheduler has a job for. Raises ValueError for a file that is damaged."""
    if not files.exists(folder / FILE):
        return None
    values = documents.read_json(folder / FILE)
    try:
        return Ticket(**values)
    except TypeError as error:
        raise ValueError(f"{folder / FILE}: {error}") from None


def has_ended(folder: Path) -> bool:
    """Whether the run has its result, and nothing is added to it any more. Raises OSError, ValueError."""
    made = read(folder)
    return made is not None and made.ended and run_folder.read_result(folder) is not None


def mark(folder: Path, ended: bool) -> None:
    """Say that the first node's supervisor has ended, or is at it again. Raises OSError, ValueError."""
    made = read(folder)
    if made is not None and made.ended != ended:
        write(folder, replace(made, ended=ended))
