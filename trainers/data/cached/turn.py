"""A lock for processes that need the same cache entry: one makes it, and the others wait."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Two busy cores took 13 minutes to draw 18,000 images. gloo's processes wait half an hour for each other.
WAIT_SEC = 1200.0
POLL_SEC = 0.05


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
