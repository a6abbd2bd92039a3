"""Locks a run folder for as long as any process of the run lives, however the processes end.

The launcher locks `.owner` in the folder that it makes. The worker and its ranks inherit the lock with the open file,
and the kernel releases it when the last of them is gone. So a held lock means that the run continues. A free lock
means that it is over, but only on the machine that took the lock: file systems differ in whether they show locks of
other machines.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tracking.record import files, run_folder

FOLLOWER = ".follower"
PATIENCE_SEC, RETRY_SEC = 0.5, 0.05  # a process that checks whether a folder is owned locks it for a moment
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of a file system without locks


_held_locks: set[tuple[int, int]] = set()  # the locks that this process holds


class Running(Exception):
    """Another process runs the folder, or may run it unless `certain`. The message says what is known."""

    def __init__(self, message: str, certain: bool = False) -> None:
        super().__init__(message)
        self.certain = certain


class Owner:
    """This process's lock on a folder, shared with all processes that inherit the descriptor."""

    def __init__(self, folder: Path, file: IO[str], locked: bool) -> None:
        self.folder, self._file, self._locked = folder, file, locked
        self._key, self._pid = _key(file), os.getpid()
        _held_locks.add(self._key)

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def let_go(self) -> None:
        """Close the descriptor. Processes that have inherited it keep the lock."""
        _held_locks.discard(self._key)
        self._file.close()

    def release(self) -> None:
        """Unlock the folder, even if a process that the workload left behind has the descriptor.

        In a forked child the lock stays: the end of a script's child is not the end of the run.
        """
        if self._locked and not self._file.closed and os.getpid() == self._pid:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.let_go()


def take(
    folder: Path, name: str = run_folder.RUN_LOCK, inherited: int | None = None, patience_sec: float = PATIENCE_SEC
) -> Owner:
    """Become the owner of a folder; with the name FOLLOWER, the only follower of a run that another process owns.

    `inherited` is the descriptor of an owner that handed the folder over. Raises Running if another process holds the
    lock for longer than `patience_sec`, and OSError if the folder is not writable.
    """
    file = os.fdopen(inherited, "a+", encoding="utf-8") if inherited is not None else files.opened(folder / name, "a+")
    deadline = time.monotonic() + patience_sec
    try:
        while True:
            try:
                locked = _lock(file)
                break
            except Running:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SEC)
        file.truncate(0)
        json.dump(_identity(file) | {"locks": locked}, file)
        file.flush()
    except BaseException:
        file.close()
        raise
    return Owner(folder, file, locked)


def make(root: Path, name: str) -> Owner:
    """Make a new folder with run_folder.create and own it at once. Raises OSError."""
    folder = run_folder.create(root, name)
    try:
        return take(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def hold(folder: Path, name: str = run_folder.RUN_LOCK) -> Iterator[int]:
    """Own a folder within the block. Yields the descriptor for the run's processes to inherit. Raises as `take`."""
    with take(folder, name) as owner:
        yield owner.descriptor


@contextmanager
def hold_abandoned(folder: Path, ended: bool = False) -> Iterator[None]:
    """Own, within the block, the folder of a run whose processes are all gone. Raises Running unless that is certain.

    With `ended`, the caller guarantees that they are gone where this machine cannot know it. A held lock of the run,
    its follower or its sweep still raises.
    """
    path = folder / run_folder.RUN_LOCK
    if not files.exists(path) and not ended:
        raise Running(f"its {run_folder.RUN_LOCK}, which names the process that runs it, is missing")
    with files.opened(path, "a+") as file:
        _lock(file)
        _held_locks.add(_key(file))
        try:
            _check_followed(folder)
            reason = _why_uncertain(folder, file)
            if reason and not ended:
                raise Running(reason)
            yield
        finally:
            _held_locks.discard(_key(file))


def _check_followed(folder: Path) -> None:
    """Raise Running if another process follows the run, or runs its sweep."""
    locks = [folder / FOLLOWER]
    with suppress(OSError, ValueError):  # reported later, with the run's outcome
        parent = run_folder.parent_of(folder)
        locks += [parent / run_folder.RUN_LOCK] if parent else []
    for path in locks:
        with suppress(OSError), files.opened(path) as file:
            if _key(file) not in _held_locks:
                _lock(file, fcntl.LOCK_SH)


def _key(file: IO[str]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _lock(file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Lock the file. Returns False if the file system has no locks. Raises Running if another process holds it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Running(f"{_description(_read(file))} runs it", certain=True) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True


def _why_uncertain(folder: Path, file: IO[str]) -> str:
    """Why the run may still be running although its lock is free; empty if it cannot."""
    recorded = _read(file)
    current = _identity(file)
    if not recorded:
        return f"its {run_folder.RUN_LOCK} does not name the process that runs it"
    if recorded["inode"] != current["inode"]:
        return f"it is a copy of a folder that {_description(recorded)} ran"
    if recorded["locks"] and recorded["boot_id"] and recorded["boot_id"] == current["boot_id"]:
        return ""
    if recorded["host"] == current["host"] and recorded["boot_id"] != current["boot_id"] and _silent_since_boot(folder):
        return ""
    return f"{_description(recorded)} ran it, and from here it cannot be seen whether it still does"


def _silent_since_boot(folder: Path) -> bool:
    """Whether the journal was last written before this machine booted, so no other machine continued the run."""
    import psutil  # Only here: a worker's environment may lack it.

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


def _description(recorded: dict[str, Any]) -> str:
    return f"process {recorded['pid']} on {recorded['host']}" if recorded else "another process"
