"""Caches folders of generated files, in the user's cache or in a folder that the user names."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conf.schema import ConfigError
from tracking.base.paths import with_home
from tracking.machine.environment import cache, distrust, private_folder

ELSEWHERE = "set dataset.path or the environment variable TIMETRIAL_CACHE to a folder"
# Two busy cores took 13 minutes to draw 18,000 images. gloo's processes wait half an hour for each other.
WAIT_SEC = 1200.0
POLL_SEC = 0.05


def cached_folder(
    name: str, noun: str, path: str | None, make: Callable[[Path, int | None], None], trouble: Callable[[Path], str],
    elsewhere: str = ELSEWHERE,
) -> Path:  # fmt: skip
    """Return the folder `name` in `path`, or in the cache without a `path`; if it is missing, `make` fills it.

    If several processes need it at once, one makes it and the others wait, for up to turn.WAIT_SEC. `make` gets an
    empty folder, which is renamed once it is complete. It also gets a descriptor that keeps the others waiting, or
    None.

    `trouble` describes damage to a complete folder, or returns an empty text. A damaged folder in the cache is made
    anew with a message, as is one that another user could have written. A folder in `path` belongs to the user and is
    not changed. `elsewhere` says how to choose another place.

    Raises ConfigError if the folder cannot be written, and for a damaged one in `path`.
    """
    parent = with_home(path) if path else cache()
    root = parent / name
    wrong = _wrong(root, path, trouble)
    if path and wrong:
        raise ConfigError(
            f"dataset.path={parent}: the generated {noun} in {root} is damaged: {wrong}. Next: delete the folder to"
            " have it made again"
        )
    if root.exists() and not wrong:
        return root
    try:
        parent.mkdir(parents=True, exist_ok=True) if path else private_folder()
        with turn(parent / f".{name}.lock") as lock:
            wrong = _wrong(root, path, trouble)  # Another process may have made it in the meantime.
            if wrong:
                print(f"{root}: is not used, because {wrong}; it is made anew", file=sys.stderr, flush=True)
            if wrong or not root.exists():
                _make(root, lock, make)
    except OSError as error:
        key = f"dataset.path={path}" if elsewhere == ELSEWHERE else "cache"
        raise ConfigError(
            f"{key}: the generated {noun} cannot be written to {root} ({error}). Next: {elsewhere} with room and write"
            " access"
        ) from error
    if not path and (why := distrust(root)):
        raise ConfigError(
            f"cache: the generated {noun} is not used, because {why}. Next: remove it, or {elsewhere} of your own"
        )
    return root


def _wrong(root: Path, path: str | None, trouble: Callable[[Path], str]) -> str:
    """Return why an existing folder cannot be used; empty if it can be used or does not exist."""
    if not path and (why := distrust(root)):
        return why
    return trouble(root) if root.exists() else ""


def _make(root: Path, lock: int | None, make: Callable[[Path, int | None], None]) -> None:
    # Without the lock this process must not touch the other one's partial folder, which may still be in the making.
    partial = root.with_name(f".{root.name}.{'partial' if lock is not None else os.getpid()}")
    stale = root.with_name(f".{root.name}.stale-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)  # Its maker has ended, else it would hold the lock.
    partial.mkdir()
    try:
        make(partial, lock)
        if root.exists():  # The new files are identical, so processes that read the old ones can continue.
            root.rename(stale)
        partial.rename(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(stale, ignore_errors=True)


@contextmanager
def turn(lock: Path) -> Iterator[int | None]:
    """Lock the file `lock` and yield its descriptor; yield None if another process held it for WAIT_SEC.

    The kernel releases the lock when its holder, and each process that inherited it, has ended, so a killed maker does
    not block others. Raises OSError if the file cannot be opened or locked.
    """
    with lock.open("w") as file:
        deadline = time.monotonic() + WAIT_SEC
        while not (held := _locked(file.fileno())) and time.monotonic() < deadline:
            time.sleep(POLL_SEC)
        if not held:
            print(f"{lock.parent}: another process has held its lock for {WAIT_SEC:g} s; not waiting", file=sys.stderr)
        yield file.fileno() if held else None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
