"""The failure of a run whose worker could not record it: a signal, an exit code, or an error of the launcher."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import traceback
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

from tracking.record import documents, files, run_folder
from tracking.record.run_folder import Failure
from tracking.record.typed_json import checked


class Ended(Protocol):
    """A process that has exited."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...


LAST_WORDS_BYTES = 4000
# Kinds of failure that one rank has by itself, independent of the others.
INDEPENDENT_FAILURES = ("oom", "nan", "bad_input", "disk_full")
# Kinds of failure that the setting causes, and that would happen again.
REPEATABLE_FAILURES = ("search", "timeout", "nan", "oom", "bad_input", "error")
# Kinds of failure of an interrupted run, which may continue later, with the cause in words.
INTERRUPTED = {
    "preempted": "a preemption",
    "cancelled": "a cancellation",
    **{f"signal:{signum.value}": signum.name for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)},
}
# Kinds of failure that stop a run from outside: its time is censored there.
STOP_CAUSES = {"timeout": "a time limit", "search": "a search", **INTERRUPTED}
KERNEL_OUT_OF_MEMORY = "the kernel had no main memory left for it"
# torchrun prints its own error after those of its ranks.
TORCHRUN, RANK_ERROR = "ChildFailedError", re.compile(r"^\[rank\d+\]: (\w[\w.]*(?:Error|Exception)\b.*)$", re.M)
SIGNAL_EXIT_BASE = 128  # a container's exit code is 128 + N if its process died of signal N
# Exit codes of docker, podman and tracking/jobs/worker_command/guard.py, which a worker does not use.
CONTAINER_ERRORS = {
    78: "",
    125: "the engine could not start the container (exit code 125): ",
    126: "the container's command cannot be executed (exit code 126), as with an image of another architecture: ",
    127: "the image holds no such command (exit code 127): ",
}


def unexplained(folder: Path, process: Ended, contained: bool = False) -> Failure | None:
    """The failure of a worker without a result: it was killed or could not start. None if there is a result."""
    code = process.returncode
    if run_folder.read_result(folder) is not None:
        return None
    if contained and code in CONTAINER_ERRORS:
        message = f"{CONTAINER_ERRORS[code]}{last_line(folder) or 'without a word'}"
        return Failure("bad_input", message, last_words(folder))
    if contained and code is not None and SIGNAL_EXIT_BASE < code < SIGNAL_EXIT_BASE + signal.NSIG:
        code = SIGNAL_EXIT_BASE - code
    if code is None:
        return Failure("error", f"process {process.pid} hangs in the kernel and cannot be killed", last_words(folder))
    if code < 0:
        return killed(folder, -code, f"the worker was killed by {signal.Signals(-code).name}")
    printed = f"; it last printed: {line}" if (line := last_line(folder)) else ""
    message = f"the worker ended with exit code {code} and no result{printed}"
    kind = "error"
    if run_folder.lacks_room(folder):  # A worker on a full disk cannot write why it failed.
        kind, message = "disk_full", f"{message}; its disk has no room left: {folder}"
    return recorded(folder) or Failure(kind, message, last_words(folder))


def short_of_memory(folder: Path, failure: Failure | None) -> Failure | None:
    """The failure of a run in which the kernel killed a process for lack of memory: a SIGKILL becomes `oom`.

    Without `failure`, the one in the run's result is used. Any other `failure` is returned unchanged.
    """
    result = run_folder.read_result(folder)
    current = failure or (result.failure if result else None)
    if current is None or current.kind != f"signal:{signal.SIGKILL}":
        return failure
    current = with_last_words(folder, current)
    return dataclasses.replace(current, kind="oom", message=f"{current.message}: {KERNEL_OUT_OF_MEMORY}")


def last_line(folder: Path) -> str:
    """The error of the last traceback in the worker's log, else the last line.

    Libraries may print more after a traceback. If the worker never began, its container's engine printed the line.
    """
    words = last_words(folder).strip()
    if TORCHRUN in words and (rank_error := RANK_ERROR.search(words)):
        return rank_error[1]
    _, heading, frames = words.rpartition("Traceback (most recent call last):\n")
    errors = [line for line in frames.splitlines() if line and not line.startswith(" ")] if heading else []
    return (errors[:1] or words.splitlines()[-1:] or [""])[0]


def killed(folder: Path, signum: int, message: str, time_ms: int | None = None) -> Failure:
    """The failure of a killed run, unless one of its ranks had failed by itself before."""
    return recorded(folder) or Failure(
        f"signal:{signum}", message, last_words(folder), time_ms=time_ms or run_folder.now_ms()
    )


def recorded(folder: Path) -> Failure | None:
    """The first failure in the ranks' files that is not a consequence of another process's end; None without one."""
    independent = [failure for failure in of_ranks(folder) if failure.kind in INDEPENDENT_FAILURES]
    return min(independent, key=lambda failure: failure.time_ms, default=None)


def first_of_ranks(folder: Path, failure: Failure) -> Failure:
    """The earliest of this failure and those in the ranks' files. The later ones are its consequences."""
    return min([failure, *of_ranks(folder)], key=lambda failure: failure.time_ms)


def of_ranks(folder: Path) -> list[Failure]:
    paths = [folder / name for name in files.names(folder) if fnmatch(name, run_folder.FAILURE.format(rank="*"))]
    return [checked(Failure, documents.read_json(path), path) for path in paths]


def last_words(folder: Path) -> str:
    """The last lines of the worker's log; empty without a log."""
    path = folder / run_folder.WORKER_LOG
    if not files.exists(path):
        return ""
    with files.opened(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - LAST_WORDS_BYTES))
        return whole_lines(file.read().decode(errors="replace"), size > LAST_WORDS_BYTES)


def whole_lines(words: str, cut: bool) -> str:
    """The words without their first, partial line if they were `cut`; a single line stays."""
    _, end, rest = words.partition("\n")
    return rest if cut and end and rest.strip() else words


def with_last_words(folder: Path, failure: Failure) -> Failure:
    """A failure without a traceback, with the last lines of the worker's log in its place.

    For followers: the log is complete only after the worker has ended.
    """
    silent = failure.kind == "error" or failure.kind.startswith("signal:")
    if failure.traceback or not silent:
        return failure
    return dataclasses.replace(failure, traceback=last_words(folder))


def is_crash(failure: Failure | None) -> bool:
    """Whether a signal ended the run other than those that interrupt runs."""
    return failure is not None and failure.kind.startswith("signal:") and failure.kind not in INTERRUPTED


def of_launcher(error: Exception) -> Failure:
    """The failure of a job because of an error in the launcher."""
    kind = "disk_full" if run_folder.is_full(error) else "error"
    return Failure(kind, f"the launcher: {type(error).__name__}: {error}", traceback.format_exc())
