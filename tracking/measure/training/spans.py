"""Find events in a run: the first of a kind, and the intervals between two kinds."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.record import Record


def first(events: Sequence[Record], key: str) -> Record | None:
    return next((event for event in events if event.key == key), None)


def intervals(events: Sequence[Record], name: str) -> list[tuple[float, float]]:
    """Start and end of each interval from `<name>_start` to `<name>_stop`, in seconds of the monotonic clock.

    Raises ValueError if an interval ends before it starts, since the clock went back and no figure can be trusted.
    """
    spans = []
    start: float | None = None
    for event in events:
        if event.key == f"{name}_start":
            start = event.clock_sec
        elif event.key == f"{name}_stop" and start is not None:
            if event.clock_sec < start:
                raise ValueError(f"{name} ends {start - event.clock_sec:.3f} s before it starts: the clock went back")
            spans.append((start, event.clock_sec))
            start = None
    return spans


def total(spans: Sequence[tuple[float, float]]) -> float:
    """The sum of the spans' seconds."""
    return sum(end - begin for begin, end in spans)


def training(events: Sequence[Record]) -> list[tuple[float, float]]:
    """The intervals of each epoch without evaluations and checkpoints, on the monotonic clock."""
    spans: list[tuple[float, float]] = []
    start: float | None = None
    for event in events:
        if event.key in ("epoch_start", "eval_stop", "checkpoint_stop"):
            start = event.clock_sec
        elif event.key in ("epoch_stop", "eval_start", "checkpoint_start", "run_stop") and start is not None:
            spans.append((start, event.clock_sec))
            start = None
    return spans
