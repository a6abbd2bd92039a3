"""A folder of files that are made once: in the user's cache, or in a folder that the user names."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from conf.schema import ConfigError
from tracking.machine.environment import cache, distrust, private_folder
from trainers.data.cached.turn import turn

ELSEWHERE = "set dataset.path or the environment variable TIMETRIAL_CACHE to a folder"


def cached_folder(
    name: str, what: str, path: str | None, make: Callable[[Path, int | None], None], trouble: Callable[[Path], str],
    elsewhere: str = ELSEWHERE,
) -> Path:  # fmt: skip
    """The folder `name` in `path`, else in the cache; `make` fills it where it is missing.

    Of processes that ask at once one makes it; the others wait, for turn.WAIT_SEC at most. `make` gets an empty folder,
    which is renamed once it is whole, and a descriptor that keeps the others waiting, or None. `trouble` says in words
    what is wrong with a whole one. Then one in the cache is made anew, as one that others can have written is, and that
    is said. One in `path` is the user's, and left alone. `elsewhere` says how to choose another place.

    Raises ConfigError where it cannot be written, and for one in `path` that is not as it was made.
    """
    parent = Path(path).expanduser() if path else cache()
    root = parent / name
    wrong = _wrong(root, path, trouble)
    if path and wrong:
        raise ConfigError(
            f"dataset.path={parent}: the generated {what} in {root} is damaged: {wrong}; delete the folder, and it is"
            " made again"
        )
    if root.exists() and not wrong:
        return root
    try:
        parent.mkdir(parents=True, exist_ok=True) if path else private_folder()
        with turn(parent / f".{name}.lock") as lock:
            wrong = _wrong(root, path, trouble)  # Another process may have made it in the meantime.
            if wrong:
                print(f"{root}: not used, since {wrong}; made anew", file=sys.stderr, flush=True)
            if wrong or not root.exists():
                _make(root, lock, make)
    except OSError as error:
        key = f"dataset.path={path}" if elsewhere == ELSEWHERE else "cache"
        raise ConfigError(
            f"{key}: the generated {what} cannot be written to {root} ({error}); {elsewhere} that has room and can be"
            " written"
        ) from error
    if not path and (why := distrust(root)):
        raise ConfigError(
            f"cache: the generated {what} is not used, since {why}; remove it, or {elsewhere} of your own"
        )
    return root


def _wrong(root: Path, path: str | None, trouble: Callable[[Path], str]) -> str:
    """Why a folder that is there cannot be used; empty where it can, and where there is none."""
    if not path and (why := distrust(root)):
        return why
    return trouble(root) if root.exists() else ""


def _make(root: Path, lock: int | None, make: Callable[[Path, int | None], None]) -> None:
    # Without its turn this process must not touch what the other one makes, which may take as long again.
    partial = root.with_name(f".{root.name}.{'partial' if lock is not None else os.getpid()}")
    stale = root.with_name(f".{root.name}.stale-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)  # Whoever began it has ended, or it would hold the lock.
    partial.mkdir()
    try:
        make(partial, lock)
        if root.exists():  # What is made anew is the same to the last bit, so who reads it now goes on reading.
            root.rename(stale)
        partial.rename(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(stale, ignore_errors=True)
