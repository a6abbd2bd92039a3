"""Says in the journal which part of a run's start begins and ends (tracking.base.start_parts)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tracking.record import Journal


@contextmanager
def part_of_start(log: Journal | None, name: str) -> Iterator[None]:
    """An interval `name` of the journal, which rank 0 has. A part that fails does not end."""
    if log:
        log.event(f"{name}_start")
    yield
    if log:
        log.event(f"{name}_stop")
