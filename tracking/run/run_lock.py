"""Who runs a folder: a lock that lasts as long as any process of the run, however those end.

The launcher locks `.owner` in the folder it runs, and the worker and its ranks inherit the lock with the open file: the
kernel releases it when the last of them is gone. So a lock that is held means that the run goes on. One that is free
means that it is over, where the lock can be seen at all: file systems differ in whether they show the locks of other
machines, so a free lock is trusted on the machine that took it alone.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tracking.run import files, run_folder

FOLLOWER = ".follower"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what a file system without locks answers


class Running(Exception):
    """Somebody runs the folder, or may, where that is not `certain`; the message says what is known."""

    def __init__(self, message: str, certain: bool = False) -> None:
        super().__init__(message)
        self.certain = certain


@contextmanager
def hold(folder: Path, name: str = run_folder.RUN_LOCK) -> Iterator[int]:
    """Be the one who runs the folder; yields the descriptor that processes of the run are to inherit.

    With the name FOLLOWER, be the one who follows it: that of a cluster's job is run by another. Raises Running where
    somebody else does, OSError where the folder cannot be written to.
    """
    with files.opened(folder / name, "a+") as file:
        locks = _lock(file)
        file.truncate(0)
        json.dump(_identity(file) | {"locks": locks}, file)
        file.flush()
        try:
            yield file.fileno()
        finally:
            if locks:
                fcntl.flock(file, fcntl.LOCK_UN)  # This unlocks it for a process that a workload left behind, too.


@contextmanager
def hold_abandoned(folder: Path, ended: bool = False) -> Iterator[None]:
    """Be the one who clears up after a run whose processes are all gone. Raises Running unless that is certain.

    With `ended`, the caller answers for what cannot be known from here; a lock that is held stands all the same.
    """
    path = folder / run_folder.RUN_LOCK
    if not files.exists(path) and not ended:
        raise Running(f"there is no {run_folder.RUN_LOCK} in it, which says who runs it")
    with files.opened(path, "a+") as file:
        _lock(file)
        doubt = _doubt(folder, file)
        if doubt and not ended:
            raise Running(doubt)
        yield


def _lock(file: IO[str]) -> bool:
    """Lock the file; False where the file system has no locks. Raises Running where another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Running(f"{_description(_read(file))} runs it", certain=True) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True


def _doubt(folder: Path, file: IO[str]) -> str:
    """Why the run may go on although its lock is free; empty where it cannot."""
    known = _read(file)
    own = _identity(file)
    if not known:
        return f"its {run_folder.RUN_LOCK} does not say who runs it"
    if known["inode"] != own["inode"]:
        return f"it is a copy of a folder that {_description(known)} ran"
    if known["locks"] and known["boot_id"] and known["boot_id"] == own["boot_id"]:
        return ""
    if known["host"] == own["host"] and known["boot_id"] != own["boot_id"] and _silent_since_boot(folder):
        return ""
    return f"{_description(known)} ran it, and from here it cannot be seen whether it still does"


def _silent_since_boot(folder: Path) -> bool:
    """Whether the journal was last written before this machine was started: then another has not gone on with it."""
    import psutil  # Only here: a worker's environment need not have it.

    path = folder / run_folder.JOURNAL
    return not files.exists(path) or path.lstat().st_mtime < psutil.boot_time()


def _identity(file: IO[str]) -> dict[str, Any]:
    return {
        "host": platform.node(),
        "boot_id": BOOT_ID.read_text().strip() if BOOT_ID.exists() else "",
        "inode": os.fstat(file.fileno()).st_ino,  # a copy of the folder has another
        "pid": os.getpid(),
        "time_ms": time.time_ns() // 1_000_000,
    }


def _read(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    with suppress(ValueError):
        return dict(json.load(file))
    return {}


def _description(known: dict[str, Any]) -> str:
    return f"process {known['pid']} on {known['host']}" if known else "another process"
