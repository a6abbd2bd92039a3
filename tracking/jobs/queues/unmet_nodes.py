"""Removes a run whose hand-started nodes do not fit together or never met."""

from __future__ import annotations

import shutil
from pathlib import Path

from conf.schema import ConfigError
from tracking.jobs.follow import unfinished
from tracking.jobs.plan import Job
from tracking.record import failures, journal, run_folder

ENDED = ("bad_input", *failures.STOP_CAUSES)  # nodes that do not fit, or a signal


def is_unmet(job: Job) -> bool:
    """Whether the job ended before its nodes met."""
    if job.config.nodes == 1 or job.config.cluster.kind != "none" or job.folder is None:
        return False
    begun = any(event.key == "init_start" for event in journal.events(job.folder / run_folder.JOURNAL))
    failure = job.result.failure if job.result else None
    return not begun and failure is not None and failure.kind in ENDED


def give_up(job: Job, folder: Path) -> int:
    """Remove the job's folder; returns the exit code. Raises ConfigError if its nodes do not fit together."""
    unfinished.unmark(folder)
    shutil.rmtree(folder)
    assert job.result
    assert job.result.failure
    if job.result.failure.kind == "bad_input":
        raise ConfigError(job.result.failure.message)
    return 1
