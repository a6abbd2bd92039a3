"""Whose turn it is to make what several processes want: one makes it, and the others wait."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Two busy cores have drawn 18,000 images for 13 minutes. Processes of a group wait half an hour for each other (gloo).
WAIT_SEC = 1200.0
POLL_SEC = 0.05


@contextmanager
def turn(lock: Path) -> Iterator[int | None]:
    """The descriptor of the file `lock`, held by this process alone; None where another held it for WAIT_SEC.

    The kernel releases it when its holder has ended, and each process that the holder passed it to. So a killed maker
    stops nobody. Raises OSError where the file cannot be opened or locked.
    """
    with lock.open("w") as file:
        deadline = time.monotonic() + WAIT_SEC
        while not (held := _locked(file.fileno())) and time.monotonic() < deadline:
            time.sleep(POLL_SEC)
        if not held:
            print(f"{lock.parent}: another process has been at work for {WAIT_SEC:g} s; not waiting", file=sys.stderr)
        yield file.fileno() if held else None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
