"""Ends runs that were cut off: their launcher was killed, or the machine went down."""

from __future__ import annotations

import dataclasses
import time
from contextlib import suppress
from pathlib import Path

from tracking.base.installation import LAUNCH
from tracking.jobs.node import outcome, scheduler_endings
from tracking.jobs.plan import sweep
from tracking.record import Failure, Journal, documents, failures, files, journal, run_folder, run_lock
from tracking.request import refusal

NUM_RETRIES, RETRY_SEC = 4, 0.25  # another `sync` may hold the folder while it ends the run
KILLED = 9  # SIGKILL: the launcher cannot record it, and the kernel kills its worker too


def repair(folder: Path, ended: bool = False) -> bool:
    """Write the missing result of a cut-off run, or of a sweep and its jobs; returns whether one was missing.

    The result is dated to the last sign of life. Raises run_lock.Running if a process runs the folder, or may run it.
    `ended`: the user says that the run has ended, which this host may be unable to tell. A finished run without
    MLPerf's log gets one: its launcher was killed before it wrote the log.
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
        if run_folder.read_result(folder) is not None:  # another process wrote it first
            return False
        documents.remove_temporary(folder)
        if run_folder.read_info(folder).kind == "sweep":
            end_sweep(folder, ended)
        else:
            end_run(folder, scheduled)
    return True


def write_log(folder: Path) -> None:
    from tracking.analysis import mlperf  # Here: a run's start must not wait for this import.

    with suppress(OSError, ValueError):  # `sync` says what is wrong with a folder
        if run_folder.read_info(folder).kind != "sweep" and not files.exists(folder / mlperf.LOG):
            mlperf.write(folder)


def end_run(folder: Path, scheduled: Failure | None = None) -> None:
    Journal(folder / run_folder.JOURNAL).close()  # adds the missing newline of a last line that is otherwise whole
    last_ms = last_sign_ms(folder)
    failure = failures.killed(folder, KILLED, cut_off_message("worker", last_ms), last_ms)
    outcome.end(folder, dataclasses.replace(scheduled, time_ms=last_ms) if scheduled else failure)


def end_sweep(folder: Path, ended: bool) -> None:
    jobs = files.folders(folder, run_folder.RUN)
    for job in jobs:
        with suppress(OSError, ValueError):  # `sync` reports a broken folder; the sweep ends without it
            repair(job, ended)
    last_ms = last_sign_ms(folder)
    for job in jobs:
        with suppress(OSError, ValueError):
            last_ms = max(last_ms, last_sign_ms(job))
    message = f"{cut_off_message('sweep', last_ms)}; continue it with {LAUNCH} {refusal.resuming(folder)}"
    sweep.finish(folder, sweep.read(folder), failures.killed(folder, KILLED, message, last_ms))


def cut_off_message(noun: str, last_ms: int) -> str:
    last = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(last_ms / 1000))
    return f"the launcher was killed, or the machine went down, and the {noun} with it; last sign of life: {last}"


def last_sign_ms(folder: Path) -> int:
    """The time of the run's last sign of life, in ms since the epoch."""
    result = run_folder.read_result(folder)
    failed_ms = result.failure.time_ms if result and result.failure else 0
    records = [record.time_ms for record, _ in journal.read(folder / run_folder.JOURNAL)]
    return max(run_folder.read_info(folder).created_ms, failed_ms, *records)
