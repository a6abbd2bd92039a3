"""What a run's folder says of the job that a scheduler has for it: `cluster.json`, written by who submits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from tracking.run import documents, files, run_folder

FILE = "cluster.json"
SCRIPT = "job.sbatch"  # what was submitted
PRINTED = "slurm.log"  # what Slurm and its commands printed in the job


@dataclass
class Ticket:
    kind: str  # slurm | here, as in conf/cluster
    job_id: str
    max_requeues: int = 0
    requeues: int = 0  # by who follows; Slurm counts its own
    submitted_ms: int = field(default_factory=run_folder.now_ms)


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
