"""Remembers in the folder of a run or a sweep which alerts were sent: an empty file for each.

An alert is marked just before its command starts. So a crash between the two loses it, and no alert is sent twice. If
the folder cannot be read or written, the alert counts as new: one too many is better than none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tracking.jobs.plan import Job
from tracking.record import attempts, files, journal, run_folder

NAME = ".alert.{kind}.{number}"  # never an artifact, as all names with a dot first


def is_new_of_run(folder: Path, kind: str, time_ms: int) -> bool:
    """Whether an alert of the attempt at this time was not sent before. It counts as sent from now on.

    The attempt follows from the journal, and not from what the caller has read: a launcher that resumes a run reads
    the journal from there on, and a follower reads all of it.
    """
    try:
        events = journal.events(folder / run_folder.JOURNAL)
    except (OSError, ValueError):
        return True
    attempt = 1 + sum(event.key == attempts.RESUME and event.time_ms <= time_ms for event in events)
    return _is_new(folder / NAME.format(kind=kind, number=attempt))


def is_new_of_sweep(folder: Path, kind: str, jobs: Sequence[Job]) -> bool:
    """Whether an alert of a sweep with these ends of its jobs was not sent before. It counts as sent from now on.

    A sweep that is resumed gets other ends if it runs a job.
    """
    ends = sorted(str(_end(job)) for job in jobs)
    digest = hashlib.sha256(json.dumps(ends).encode()).hexdigest()[:16]
    return _is_new(folder / NAME.format(kind=kind, number=digest))


def _end(job: Job) -> tuple[str, str, int]:
    """The job's newest folder, its status, and when it failed."""
    failure = job.result.failure if job.result else None
    return (
        job.folder.name if job.folder else job.name,
        job.result.status if job.result else "",
        failure.time_ms if failure else 0,
    )


def _is_new(mark: Path) -> bool:
    try:
        files.opened(mark, "x").close()  # Of two processes, one makes the file.
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
