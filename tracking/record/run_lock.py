"""Who runs a folder: a lock that lasts as long as any process of the run, however those end.

The launcher locks `.owner` in the folder that it makes, and the worker and its ranks inherit the lock with the open
file: the kernel releases it when the last of them is gone. So a lock that is held means that the run goes on. One that
is free means that it is over, where the lock can be seen at all: file systems differ in whether they show the locks of
other machines, so a free lock is trusted on the machine that took it alone.
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
HANDED_OVER = "TIMETRIAL_OWNER"  # holds the descriptor of a lock for the process that is to have the folder
PATIENCE_SEC, RETRY_SEC = 0.5, 0.05  # who looks whether a folder is owned has its lock for a moment
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what a file system without locks answers


_held: set[tuple[int, int]] = set()  # the locks that this process has


class Running(Exception):
    """Somebody runs the folder, or may, where that is not `certain`; the message says what is known."""

    def __init__(self, message: str, certain: bool = False) -> None:
        super().__init__(message)
        self.certain = certain


class Owner:
    """This process's hold of a folder, which it shares with all that inherit the descriptor."""

    def __init__(self, folder: Path, file: IO[str], locked: bool) -> None:
        self.folder, self._file, self._locked = folder, file, locked
        self._key, self._pid = _key(file), os.getpid()
        _held.add(self._key)

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def let_go(self) -> None:
        """Leave the folder to the processes that have inherited the descriptor; where there are none, to nobody."""
        _held.discard(self._key)
        self._file.close()

    def release(self) -> None:
        """Answer for it no more, and unlock it for a process that a workload left behind, too.

        In a process that this one has forked, the lock stays: the end of a script's child is not the run's.
        """
        if self._locked and not self._file.closed and os.getpid() == self._pid:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.let_go()


def take(
    folder: Path, name: str = run_folder.RUN_LOCK, inherited: int | None = None, patience_sec: float = PATIENCE_SEC
) -> Owner:
    """Become the owner of a folder; with the name FOLLOWER, its only follower: a cluster's job is run by another.

    `inherited` is the descriptor of an owner that handed the folder over. Raises Running where somebody else has it for
    longer than `patience_sec`, OSError where the folder cannot be written to.
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
    """Make a new folder `root/name`, as run_folder.create does, and be its owner at once. Raises OSError."""
    folder = run_folder.create(root, name)
    try:
        return take(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def handed_over(owner: Owner) -> dict[str, str]:
    """The variable by which a process that inherits the descriptor knows it."""
    return {HANDED_OVER: str(owner.descriptor)}


def inherited(folder: Path) -> int | None:
    """The descriptor of the folder's lock that this process was given, once; None where it was not."""
    number = os.environ.pop(HANDED_OVER, "")
    if not number.isdigit():
        return None
    with suppress(OSError), files.opened(folder / run_folder.RUN_LOCK) as file:
        if os.path.sameopenfile(int(number), file.fileno()):
            os.set_inheritable(int(number), False)
            return int(number)
    return None


@contextmanager
def hold(folder: Path, name: str = run_folder.RUN_LOCK) -> Iterator[int]:
    """Be the owner of a folder; yields the descriptor that processes of the run are to inherit. Raises as `take`."""
    with take(folder, name) as owner:
        yield owner.descriptor


@contextmanager
def hold_abandoned(folder: Path, ended: bool = False) -> Iterator[None]:
    """Be the one who clears up after a run whose processes are all gone. Raises Running unless that is certain.

    With `ended`, the caller answers for what cannot be known from here; a lock that is held stands all the same, and so
    does that of who follows the run, or runs its sweep.
    """
    path = folder / run_folder.RUN_LOCK
    if not files.exists(path) and not ended:
        raise Running(f"there is no {run_folder.RUN_LOCK} in it, which says who runs it")
    with files.opened(path, "a+") as file:
        _lock(file)
        _held.add(_key(file))
        try:
            _check_followed(folder)
            doubt = _doubt(folder, file)
            if doubt and not ended:
                raise Running(doubt)
            yield
        finally:
            _held.discard(_key(file))


def _check_followed(folder: Path) -> None:
    """Raise Running where another process follows the run, or runs the sweep that it is of."""
    locks = [folder / FOLLOWER]
    with suppress(OSError, ValueError):  # what is wrong with it is told with its outcome
        parent = run_folder.parent_of(folder)
        locks += [parent / run_folder.RUN_LOCK] if parent else []
    for path in locks:
        with suppress(OSError), files.opened(path) as file:
            if _key(file) not in _held:
                _lock(file, fcntl.LOCK_SH)


def _key(file: IO[str]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _lock(file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Lock the file; False where the file system has no locks. Raises Running where another has it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
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
