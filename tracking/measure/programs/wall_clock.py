"""Convert wall times, as in logs, to the monotonic clock, which measures durations."""

from __future__ import annotations

SET_SEC = 0.1  # a wall clock that jumps by more was set; NTP's slewing moves the monotonic clock too


class WallClock:
    """A single offset between the two clocks, so that a program's durations stay unchanged.

    Call `follow` with both clocks from time to time: if the wall clock was set, it adapts the offset. `set_by_sec` is
    the sum of these changes.
    """

    def __init__(self, time_ms: float, clock_sec: float) -> None:
        self._offset_sec = clock_sec - time_ms / 1e3
        self.set_by_sec = 0.0

    def clock_sec(self, time_ms: float) -> float:
        return time_ms / 1e3 + self._offset_sec

    def follow(self, time_ms: float, clock_sec: float) -> None:
        moved_sec = self.clock_sec(time_ms) - clock_sec
        if abs(moved_sec) > SET_SEC:
            self._offset_sec -= moved_sec
            self.set_by_sec += moved_sec
