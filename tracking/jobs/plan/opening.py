"""Opens the folder of a job that is about to run: a new folder, or the folder of a resumed run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conf.schema import ConfigError
from tracking.jobs.node import reopen, ticket
from tracking.jobs.plan import run_setup
from tracking.jobs.plan.job import Job
from tracking.jobs.plan.repair import repair
from tracking.record import Checkpoint, checkpoints, run_lock


def own_folder(
    job: Job, root: Path, sweep: Path | None, uri: str, say: Callable[[str], None]
) -> run_lock.Owner:  # fmt: skip
    """Lock of a job's folder: a new folder, or its checkpoint's folder reopened. Raises OSError, ConfigError."""
    if job.checkpoint is not None:
        return _reopened(job.checkpoint, job.config.cluster.kind == "slurm", say)
    owner = run_setup.make_folder(job.name, root, sweep)
    with run_setup.removed_unless_whole(owner):
        run_setup.prepare(owner.folder, job.name, job.config, job.overrides, uri, sweep)
    return owner


def _reopened(checkpoint: Checkpoint, on_slurm: bool, say: Callable[[str], None]) -> run_lock.Owner:
    folder = checkpoint.folder
    try:
        repair(folder)  # writes the result of the attempt that was cut off
        owner = run_lock.take(folder)
    except run_lock.Running as error:  # another launcher took the run after it was checked
        raise ConfigError(f"{folder}: {error}. Next: wait for its end") from error
    damaged = [other.path.name for other in checkpoints.in_folder(folder) if other.place > checkpoint.place]
    reopen(folder, checkpoint)
    if not on_slurm:  # Slurm no longer has the run: its states and its ends are not this attempt's.
        for name in (ticket.FILE, ticket.SCRIPT):
            (folder / name).unlink(missing_ok=True)
    note = f" ({', '.join(damaged)}: damaged)" if damaged else ""
    say(f"{folder.name}: continues after {checkpoint.words}{note}")
    return owner
