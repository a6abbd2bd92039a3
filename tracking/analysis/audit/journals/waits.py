"""The waits of a run's ranks, once more, from the windows in its journal: sums in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

MOST_PARTS, ALLOWED = 12, 0.01  # parts in which ranks are compared; share of runs with equal ranks that name one
Windows = Sequence[Mapping[str, Any]]


def sums(windows: Windows, field: str) -> list[float]:
    """The sum of each rank over the windows that have the field; empty without any."""
    rows = [window[field] for window in windows if window.get(field)]
    return [sum(column) for column in zip(*rows, strict=False)]


def exchanges(windows: Windows) -> list[float]:
    """Each rank's time in the exchange; empty of one process."""
    several = [window for window in windows if len(window.get("rank_exchange_ms") or []) > 1]
    return sums(several, "rank_exchange_ms")


def is_beyond_noise(windows: Windows) -> bool:
    """Whether the rank with the shortest wait in all has the shortest one in more parts than equal ranks would."""
    from scipy.special import bdtrc

    waits = numpy.array(
        [window["rank_exchange_ms"] for window in windows if len(window.get("rank_exchange_ms") or []) > 1]
    )
    n, size = min(MOST_PARTS, len(waits)), waits.shape[1]
    parts = numpy.add.reduceat(waits, [part * len(waits) // n for part in range(n)])
    alone = (parts == parts.min(axis=1, keepdims=True)).sum(axis=1) == 1
    shortest = int((alone & (parts.argmin(axis=1) == waits.sum(axis=0).argmin())).sum())
    chance = float(bdtrc(shortest - 1, n, 1 / size)) if shortest else 1.0
    return bool(size * chance <= ALLOWED)


def waited_in_vain(windows: Windows) -> float:
    """What the others wait for the rank that waits least, less what its data and its collections take longer."""
    several = [window for window in windows if len(window.get("rank_exchange_ms") or []) > 1]
    exchange_waits = sums(several, "rank_exchange_ms")
    slow = exchange_waits.index(min(exchange_waits))

    def beyond(field: str) -> float:
        values = sums([window for window in several if len(window.get(field) or []) == len(exchange_waits)], field)
        others = [value for rank, value in enumerate(values) if rank != slow]
        return values[slow] - sum(others) / len(others) if others else 0.0

    waited = -beyond("rank_exchange_ms")
    if waited < 0.05 * sum(window["rank_ms"][slow] for window in several):
        return 0.0
    named = sum(max(0.0, beyond(field)) for field in ("rank_wait_ms", "rank_gc_ms"))
    return max(0.0, waited - named)
