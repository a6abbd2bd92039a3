"""Ends runs that nobody could end: their launcher was killed, or the machine went down under them."""

from __future__ import annotations

import dataclasses
import time
from contextlib import suppress
from pathlib import Path

from tracking.base.installation import LAUNCH
from tracking.jobs.node import outcome, scheduler_endings
from tracking.jobs.plan import sweep
from tracking.record import Failure, Journal, documents, failures, files, journal, run_folder, run_lock

NUM_RETRIES, RETRY_SEC = 4, 0.25  # another `sync` holds a folder for as long as it takes to end it
KILLED = 9  # SIGKILL: no launcher survives it to tell, and the kernel kills its worker likewise.


def repair(folder: Path, ended: bool = False) -> bool:
    """Give a run, or a sweep and its jobs, a result where nobody will any more; whether one was missing.

    The result is dated to the last sign of life. Raises run_lock.Running where somebody runs the folder, or may; with
    `ended`, the caller answers for what cannot be known from here. A run that finished and whose launcher was killed
    then gets the log of MLPerf's that the launcher would have written.
    """
    for _ in range(NUM_RETRIES):
        if run_folder.read_result(folder) is not None:
            write_log(folder)
            return False
        try:
            return _repair(folder, ended)
        except run_lock.Running:
            time.sleep(RETRY_SEC)
    return _repair(folder, ended)


def _repair(folder: Path, ended: bool) -> bool:
    scheduled = None if ended else scheduler_endings.failure_of(folder)
    with run_lock.hold_abandoned(folder, ended or scheduled is not None):
        if run_folder.read_result(folder) is not None:  # somebody else was faster
            return False
        documents.remove_left(folder)
        if run_folder.read_info(folder).kind == "sweep":
            end_sweep(folder, ended)
        else:
            end_run(folder, scheduled)
    return True


def write_log(folder: Path) -> None:
    from tracking.analysis import mlperf  # Here: no run's start is to wait for it.

    with suppress(OSError, ValueError):  # `sync` says what is wrong with a folder
        if run_folder.read_info(folder).kind != "sweep" and not files.exists(folder / mlperf.LOG):
            mlperf.write(folder)


def end_run(folder: Path, scheduled: Failure | None = None) -> None:
    Journal(folder / run_folder.JOURNAL).close()  # a last line that lacks its newline alone is whole with it
    last_ms = last_sign_ms(folder)
    failure = failures.killed(folder, KILLED, cut_off_message("worker", last_ms), last_ms)
    outcome.end(folder, dataclasses.replace(scheduled, time_ms=last_ms) if scheduled else failure)


def end_sweep(folder: Path, ended: bool) -> None:
    jobs = files.folders(folder, run_folder.RUN)
    for job in jobs:
        with suppress(OSError, ValueError):  # `sync` says what is wrong with it; the sweep ends without it
            repair(job, ended)
    last_ms = last_sign_ms(folder)
    for job in jobs:
        with suppress(OSError, ValueError):
            last_ms = max(last_ms, last_sign_ms(job))
    message = f"{cut_off_message('sweep', last_ms)}; continue it with {LAUNCH} sweep.resume={folder.name}"
    sweep.finish(folder, sweep.read(folder), failures.killed(folder, KILLED, message, last_ms))


def cut_off_message(what: str, last_ms: int) -> str:
    last = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(last_ms / 1000))
    return f"the launcher was killed, or the machine went down, and the {what} with it; last sign of life: {last}"


def last_sign_ms(folder: Path) -> int:
    """When the run was last heard of."""
    result = run_folder.read_result(folder)
    failed_ms = result.failure.time_ms if result and result.failure else 0
    records = [record.time_ms for record, _ in journal.read(folder / run_folder.JOURNAL)]
    return max(run_folder.read_info(folder).created_ms, failed_ms, *records)
