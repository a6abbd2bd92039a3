"""A lock for benchmarks that prepare side by side on one GPU and time their steps one after another.

Compiling takes most of their time, on one core of many. `--turns FILE` gives several processes one lock: each holds it
shared while it prepares, and exclusively for its rounds.
"""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class TooSlowError(BaseException):
    """A time limit was exceeded. Not an Exception: the compiler would catch it as its own failure."""


class Turns:
    """The lock of `--turns`. Within `with`, no other process with this lock prepares or measures."""

    def __init__(self, path: str = "") -> None:
        self._file = Path(path).open("w") if path else None  # noqa: SIM115
        self._take(fcntl.LOCK_SH)

    def __enter__(self) -> None:
        self._take(fcntl.LOCK_UN)  # Two waiting processes with shared locks would deadlock.
        self._take(fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._take(fcntl.LOCK_SH)

    def leave(self) -> None:
        if self._file:
            self._file.close()

    def _take(self, kind: int) -> None:
        if self._file:
            fcntl.flock(self._file, kind)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError in the block after `seconds`; 0: never."""

    def stop(*_: Any) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
