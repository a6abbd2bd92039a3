"""What ended a run whose worker could not say it: a signal, an exit code, or trouble of the launcher's own."""

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
    """A process that has ended, with its exit code."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...


LAST_WORDS_BYTES = 4000
# Kinds of failure that a rank has by itself, whatever befell the others.
OWN_FAILURES = ("oom", "nan", "bad_input", "disk_full")
# Kinds of failure that say something of the setting that was run, and would come again.
OWN_ENDS = ("search", "timeout", "nan", "oom", "bad_input", "error")
# By kind, who interrupted a run that may go on later.
INTERRUPTED = {
    "preempted": "a preemption",
    "cancelled": "a cancellation",
    **{f"signal:{signum.value}": signum.name for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)},
}
# By kind, what stopped a run from outside: beyond that time nothing is known of it.
STOPPED_BY = {"timeout": "a time limit", "search": "a search", **INTERRUPTED}
NO_MEMORY = "the kernel had no main memory left for it"
# torchrun prints an error of its own behind those of its ranks.
TORCHRUN, RANK_ERROR = "ChildFailedError", re.compile(r"^\[rank\d+\]: (\w[\w.]*(?:Error|Exception)\b.*)$", re.M)
SIGNALLED = 128  # a container's exit code of who died of signal N is 128 + N
# Exit codes of a container that no worker has: docker's and podman's, and that of
# tracking/jobs/worker_command/guard.py.
OF_CONTAINERS = {
    78: "",
    125: "the engine could not start the container (exit code 125): ",
    126: "the container's command cannot be executed (exit code 126), as with an image of another architecture: ",
    127: "the image holds no such command (exit code 127): ",
}


def unexplained(folder: Path, process: Ended, contained: bool = False) -> Failure | None:
    """The failure of a worker that left no result: it was killed, or could not even start."""
    code = process.returncode
    if run_folder.read_result(folder) is not None:
        return None
    if contained and code in OF_CONTAINERS:
        return Failure("bad_input", f"{OF_CONTAINERS[code]}{last_line(folder) or 'without a word'}", last_words(folder))
    if contained and code is not None and SIGNALLED < code < SIGNALLED + signal.NSIG:
        code = SIGNALLED - code
    if code is None:
        return Failure("error", f"process {process.pid} hangs in the kernel and cannot be killed", last_words(folder))
    if code < 0:
        return killed(folder, -code, f"the worker was killed by {signal.Signals(-code).name}")
    printed = f"; it last printed: {line}" if (line := last_line(folder)) else ""
    message = f"the worker ended with exit code {code} and no result{printed}"
    kind = "error"
    if run_folder.lacks_room(folder):  # Whoever finds no room to write cannot leave a word of it either.
        kind, message = "disk_full", f"{message}; its disk has no room left: {folder}"
    return recorded(folder) or Failure(kind, message, last_words(folder))


def short_of_memory(folder: Path, failure: Failure | None) -> Failure | None:
    """The failure, or that in the run's result where it is None, of a run that the kernel has taken a process from for
    want of memory meanwhile; None for none. What was killed then was killed for that."""
    result = run_folder.read_result(folder)
    told = failure or (result.failure if result else None)
    if told is None or told.kind != f"signal:{signal.SIGKILL}":
        return failure
    told = with_last_words(folder, told)
    return dataclasses.replace(told, kind="oom", message=f"{told.message}: {NO_MEMORY}")


def last_line(folder: Path) -> str:
    """The error of the last traceback that the worker printed, else its last line.

    Libraries may print more behind a traceback. The engine of its container printed that, where the worker never began.
    """
    words = last_words(folder).strip()
    if TORCHRUN in words and (of_rank := RANK_ERROR.search(words)):
        return of_rank[1]
    _, heading, frames = words.rpartition("Traceback (most recent call last):\n")
    errors = [line for line in frames.splitlines() if line and not line.startswith(" ")] if heading else []
    return (errors[:1] or words.splitlines()[-1:] or [""])[0]


def killed(folder: Path, signum: int, message: str, time_ms: int | None = None) -> Failure:
    """The failure of a run that was killed, unless one of its ranks had failed for a reason of its own before."""
    return recorded(folder) or Failure(
        f"signal:{signum}", message, last_words(folder), time_ms=time_ms or run_folder.now_ms()
    )


def recorded(folder: Path) -> Failure | None:
    """The first failure that ranks have left in files, of those that another process's end does not explain."""
    own = [failure for failure in of_ranks(folder) if failure.kind in OWN_FAILURES]
    return min(own, key=lambda failure: failure.time_ms, default=None)


def first_of_ranks(folder: Path, failure: Failure) -> Failure:
    """The first of this failure and those that ranks have left in files: the others end because of it."""
    return min([failure, *of_ranks(folder)], key=lambda failure: failure.time_ms)


def of_ranks(folder: Path) -> list[Failure]:
    paths = [folder / name for name in files.names(folder) if fnmatch(name, run_folder.FAILURE.format(rank="*"))]
    return [checked(Failure, documents.read_json(path), path) for path in paths]


def last_words(folder: Path) -> str:
    """The end of what the worker printed; empty where it has no log."""
    path = folder / run_folder.WORKER_LOG
    if not files.exists(path):
        return ""
    with files.opened(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - LAST_WORDS_BYTES))
        return whole_lines(file.read().decode(errors="replace"), size > LAST_WORDS_BYTES)


def whole_lines(words: str, cut: bool) -> str:
    """The words from the first line that is whole, where they were cut from longer ones; a line alone stays."""
    _, end, rest = words.partition("\n")
    return rest if cut and end and rest.strip() else words


def with_last_words(folder: Path, failure: Failure) -> Failure:
    """The failure of a process that could not say why, with what was printed last.

    For who follows a worker: only when that has ended is all that it printed in its log, where others read it.
    """
    silent = failure.kind == "error" or failure.kind.startswith("signal:")
    if failure.traceback or not silent:
        return failure
    return dataclasses.replace(failure, traceback=last_words(folder))


def is_crash(failure: Failure | None) -> bool:
    """Whether a signal ended the run that nobody sends who interrupts one."""
    return failure is not None and failure.kind.startswith("signal:") and failure.kind not in INTERRUPTED


def trouble(error: Exception) -> Failure:
    """The failure of a job that the launcher itself could not go on with."""
    kind = "disk_full" if run_folder.is_full(error) else "error"
    return Failure(kind, f"the launcher: {type(error).__name__}: {error}", traceback.format_exc())
