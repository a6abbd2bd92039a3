"""Which of uv's environments are in use: a process that runs on one holds CACHE/stacks/DIGEST.used until it ends.

The lock is the kernel's (flock), so that it ends with the process, and a shared file system has it for all machines.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from conf.schema import ConfigError

_held: dict[Path, BinaryIO] = {}


def _opened(folder: Path) -> BinaryIO:
    return Path(f"{folder}.used").open("ab")


def hold(folder: Path) -> None:
    """Keep the environment in this folder from being removed until this process ends. Raises OSError."""
    if folder not in _held:
        _held[folder] = _opened(folder)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(_held[folder], fcntl.LOCK_SH)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Remove or replace the environment in this folder inside. Raises ConfigError if a run uses it, and OSError."""
    if own := _held.pop(folder, None):
        own.close()
    with _opened(folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: a run uses this environment, so it is neither removed nor made anew. Next: wait for the end"
                " of the run"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
