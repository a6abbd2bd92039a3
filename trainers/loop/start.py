"""Journals when each part of a run's start begins and ends (tracking.base.start_parts)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tracking.record import Journal


@contextmanager
def part_of_start(log: Journal | None, name: str) -> Iterator[None]:
    """Journal `name`_start and `name`_stop around the block, on rank 0. A part that fails has no stop event."""
    if log:
        log.event(f"{name}_start")
    yield
    if log:
        log.event(f"{name}_stop")
