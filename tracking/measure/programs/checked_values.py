"""Check the type and the bounds of values that programs write. Raises ValueError with the reason.

Programs, logs and files of a run's folder may hold any JSON. Readers check each value here, so that no later code meets
a number that a float, a date or a database cannot hold. Wall times, as in
logs, are converted to the monotonic clock, which measures durations.
"""

from __future__ import annotations

import math
from typing import Any

from tracking.base.safe_text import visible
from tracking.record import documents, typed_json

MAX_COUNT = 2**53 - 1  # floats hold every whole number up to this
LATE_MS = 86_400_000  # one day; neither clock skew nor a time zone explains more
MAX_CLOCK_SEC = 1e9  # no machine has been up for 30 years
MAX_TEXT_CHARS = 250
SHOWN_CHARS = 80
SET_SEC = 0.1  # a wall clock that jumps by more was set; NTP's slewing moves the monotonic clock too


def parse_json(text: str) -> Any:
    """The JSON of a text, by `documents.parsed`. Raises ValueError."""
    try:
        return documents.parsed(text)
    except ValueError:
        raise ValueError("is not JSON") from None


def parse_leading_json(text: str) -> Any:
    """The JSON at the start of a text; the rest is ignored. Raises ValueError."""
    try:
        return documents.DECODER.raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None


def mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: must be a mapping")
    return value


def number(value: Any, name: str) -> float:
    """A finite number, or NaN, which a loss may become."""
    if type(value) not in (int, float) or math.isinf(value):
        raise ValueError(f"{name}={shortened(value)}: must be a number")
    return float(value)


def positive(value: Any, name: str) -> float:
    if not number(value, name) > 0 or value > MAX_COUNT:
        raise ValueError(f"{name}={shortened(value)}: must be above 0, and at most {MAX_COUNT}")
    return float(value)


def count(value: Any, name: str) -> int:
    """A whole number from 0 to MAX_COUNT, possibly written as a float."""
    if type(value) not in (int, float) or not 0 <= value <= MAX_COUNT or value != int(value):
        raise ValueError(f"{name}={shortened(value)}: must be a whole number from 0 to {MAX_COUNT}")
    return int(value)


def fraction(value: Any, name: str) -> int | float:
    """A number from 0 to MAX_COUNT, as an int if it is whole."""
    if not 0 <= number(value, name) <= MAX_COUNT:
        raise ValueError(f"{name}={shortened(value)}: must be a number from 0 to {MAX_COUNT}")
    return int(value) if value == int(value) else float(value)


def time_ms(value: Any) -> float:
    """Milliseconds of the wall clock, possibly fractional, that can be written as a date."""
    if type(value) not in (int, float) or not 0 <= value <= typed_json.MAX_MS:
        raise ValueError(f"time_ms={shortened(value)}: must be milliseconds since 1970, up to the year 9999")
    return float(value)


def clock_sec(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MAX_CLOCK_SEC:
        allowed = f"seconds of time.monotonic(), from 0 to {MAX_CLOCK_SEC:g}"
        raise ValueError(f"clock_sec={shortened(value)}: must be {allowed}")
    return float(value)


def text(value: Any) -> str:
    """The value as a text of one line that can be a tag; "" if it is not a text."""
    if not isinstance(value, str):
        return ""
    printable = visible(value.encode("utf-8", "replace").decode()).replace("\n", " ")
    return printable[:MAX_TEXT_CHARS]


def shortened(value: Any) -> str:
    """The value for a message, shortened."""
    words = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return words if len(words) <= SHOWN_CHARS else words[: SHOWN_CHARS - 1] + "…"


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
