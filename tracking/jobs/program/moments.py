"""A moment on two clocks: the wall clock of logs, and the monotonic clock that measures."""

from __future__ import annotations

import time
from typing import NamedTuple

SAME_SEC = 0.005  # most time between the readings of the two clocks


class Moment(NamedTuple):
    """Milliseconds of the wall clock, UTC, and seconds of the monotonic clock."""

    time_ms: int
    clock_sec: float


def now() -> Moment:
    """The present moment, with both clocks read within SAME_SEC if possible."""
    for _ in range(10):  # The process may be descheduled between the two clocks.
        before, wall = time.monotonic(), time.time_ns()
        if time.monotonic() - before < SAME_SEC:
            break
    return Moment(wall // 1_000_000, before)
