"""Runs `alert.command` when a run fails, diverges or is slow, and when a sweep has ended.

The command gets the alert as JSON on its standard input, and a short form in variables; docs/alerts.md lists both.
Both are without secrets. The command runs beside the launcher's work for at most `alert.timeout_sec`. Its first failure
is printed, further ones are not. Files in the folder mark the alerts that were sent (see sent_alerts).
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event, Lock
from typing import Any

from rich.console import Console

from conf.launch_options import AlertConfig
from tracking.base import quantities, secrets
from tracking.jobs.plan import Job, sweep_summary
from tracking.jobs.watch import alert_command
from tracking.jobs.watch.signs import Signs, past_rates, slower
from tracking.record import Record, attempts, failures, files, headline, journal, run_folder

AT_ONCE = 4  # concurrent commands; further ones wait
KILLED_SEC = 2.0  # upper limit for killed commands to end
VERSION = 1
ON_PURPOSE = ("search", *failures.INTERRUPTED)
NAME = ".alert.{kind}.{number}"  # never an artifact, as all names with a dot first


class Alerts:
    """The alerts of one launcher. No method raises, and none but `close` waits for a command."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._signs: dict[int, Signs] = {}
        self._past: dict[int, list[float]] = {}  # by job; read once, since reading takes cores from measured runs
        self._num_resumes: Counter[int] = Counter()  # by job, in the records that were seen
        self._raised: set[tuple[int, str, int]] = set()  # job, kind, number of resumes of each alert so far
        self._told: set[tuple[int, str]] = set()  # job and kind of each alert that was sent
        self._starting = Lock()  # A comparison starts an alert from a thread of the pool.
        self._pending: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._stop = Event()  # set when running commands are to end
        self._failed = False  # whether a command's failure was printed

    def see(self, job: Job, record: Record) -> None:
        """Check a record of a job's journal for signs of trouble."""
        if job.config.alert.command is not None:
            self._guarded(self._see, job, record)

    def _see(self, job: Job, record: Record) -> None:
        self._num_resumes[id(job)] += record.key == attempts.RESUME
        signs = self._signs.setdefault(id(job), Signs())
        signs.see(record)
        # Samples of the machine say nothing about the loss. The last loss seen may be an earlier attempt's.
        if record.kind == "metrics" and quantities.TRAIN_LOSS in record.values and (words := signs.diverged()):
            self._of_job(job, "diverged", words, record.time_ms)
        if record.key == "throughput_window" and signs.is_time_to_compare() and job.folder is not None:
            self._start(self._compare, job, job.folder, signs.rate, record.time_ms, self._stop)

    def ended(self, job: Job) -> None:
        """Send an alert if a job failed; one that was stopped on purpose did not fail."""
        self._guarded(self._ended, job)

    def _ended(self, job: Job) -> None:
        failure = job.result.failure if job.result else None
        if job.config.alert.command is None or failure is None or failure.kind in ON_PURPOSE:
            return
        if failure.kind == "nan":
            self._of_job(job, "diverged", failure.message, failure.time_ms)
        self._of_job(job, "failed", f"{failure.kind}: {failure.message}", failure.time_ms)

    def sweep_ended(self, jobs: Sequence[Job], folder: Path) -> None:
        self._guarded(self._sweep_ended, jobs, folder)

    def _sweep_ended(self, jobs: Sequence[Job], folder: Path) -> None:
        alert = jobs[0].config.alert if jobs else AlertConfig()
        if alert.command is None:
            return
        rows = [{"name": job.name, "outcome": outcome_of(job)} for job in jobs]
        num_finished = sum(job.finished for job in jobs)
        words = f"sweep {folder.name}: {num_finished} of {len(jobs)} jobs finished"
        facts = {"name": folder.name, "folder": str(folder), "jobs": rows}
        if is_new_of_sweep(folder, "sweep_ended", jobs):
            self._start(self._run, alert, "sweep_ended", words, facts, self._stop)

    def close(self, interrupted: bool = False) -> None:
        """Wait until the running commands have ended; each has a time limit. Later alerts are sent, too.

        If `interrupted`, or if the wait is interrupted, running commands are killed and waiting ones do not start.
        """
        try:
            while not interrupted and not all(future.done() for future in self._pending):
                wait(self._pending)  # A comparison may start a command meanwhile.
        except BaseException:
            interrupted = True
            raise
        finally:
            if interrupted:
                self._stop.set()
                self._stop = Event()
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
                wait([future for future in self._pending if not future.cancelled()], KILLED_SEC)
                self._pool = None
            self._pending.clear()

    def _compare(self, job: Job, folder: Path, rate: float | None, time_ms: int, stop: Event) -> None:
        if id(job) not in self._past:
            self._past[id(job)] = past_rates(folder, job.config)
        if not stop.is_set() and (words := slower(rate, self._past[id(job)])):
            self._of_job(job, "slow", words, time_ms)

    def _of_job(self, job: Job, kind: str, words: str, time_ms: int) -> None:
        """Send an alert about the attempt of a job at `time_ms`, unless it was sent before."""
        raised = id(job), kind, self._num_resumes[id(job)]
        if raised in self._raised:
            return
        self._raised.add(raised)
        facts: dict[str, Any] = {"name": job.name, "folder": str(job.folder or "")}
        if job.result is not None:
            facts |= {"status": job.result.status, "headline": headline(job.result)}
            facts |= {"failure": job.result.failure.kind} if job.result.failure else {}
        self._start(self._run_of_job, job, kind, f"{job.name}: {words}", facts, time_ms, self._stop)

    def _run_of_job(self, job: Job, kind: str, words: str, facts: Mapping[str, Any], time_ms: int, stop: Event) -> None:
        if stop.is_set():
            return
        is_new = job.folder is None or is_new_of_run(job.folder, kind, time_ms)
        if is_new and (id(job), kind) not in self._told:
            self._told.add((id(job), kind))
            self._run(job.config.alert, kind, words, facts, stop)

    def _run(self, alert: AlertConfig, kind: str, words: str, facts: Mapping[str, Any], stop: Event) -> None:
        assert alert.command is not None
        content = secrets.redacted({"alert": kind, "version": VERSION, "text": words, **facts})
        alert_command.run(shlex.split(alert.command), content, alert.timeout_sec, stop)

    def _start(self, work: Any, *arguments: Any) -> None:
        with self._starting:
            self._pool = self._pool or ThreadPoolExecutor(AT_ONCE, "alert")
            self._pending = [future for future in self._pending if not future.done()]
            self._pending.append(self._pool.submit(self._guarded, work, *arguments))

    def _guarded(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:  # No error of an alert stops the sweep.
            if not self._failed:
                self._failed = True
                self._console.print(f"note: alert.command: {error}", soft_wrap=True)


def outcome_of(job: Job) -> str:
    """A job's outcome in a line; `not run` for one that an interruption left without a result."""
    return sweep_summary.outcome(job) if job.result else sweep_summary.status(job)


def is_new_of_run(folder: Path, kind: str, time_ms: int) -> bool:
    """Whether this alert is the first of its kind in its attempt. It counts as sent from now on.

    The journal tells which attempt was running at `time_ms`. The caller may have read only a part of it: a launcher
    that resumes a run begins to read there.
    """
    try:
        events = journal.events(folder / run_folder.JOURNAL)
    except (OSError, ValueError):
        return True
    attempt = 1 + sum(event.key == attempts.RESUME and event.time_ms <= time_ms for event in events)
    return _is_new(folder / NAME.format(kind=kind, number=attempt))


def is_new_of_sweep(folder: Path, kind: str, jobs: Sequence[Job]) -> bool:
    """Whether no alert was sent for a sweep whose jobs ended like this. It counts as sent from now on.

    The ends differ once a resumed sweep has run a job.
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
