"""Recompute the waits of a run's ranks from the windows in its journal: sums in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from tracking.base import quantities

# The most and the fewest parts in which ranks are compared; the fewest that count in a drift; both levels.
MOST_PARTS, FEWEST_PARTS, COUNTED_PARTS, ALLOWED, ALLOWED_OF_DRIFT = 12, 4, 5.0, 0.01, 0.005
Windows = Sequence[Mapping[str, Any]]


def sums(windows: Windows, field: str) -> list[float]:
    """The sum of each rank over the windows that have the field; empty without any."""
    rows = [window[field] for window in windows if window.get(field)]
    return [sum(column) for column in zip(*rows, strict=False)]


def exchanges(windows: Windows) -> list[float]:
    """Each rank's time in the exchange; empty for one process."""
    several = [window for window in windows if len(window.get("rank_exchange_ms") or []) > 1]
    return sums(several, "rank_exchange_ms")


def is_beyond_noise(windows: Windows) -> bool:
    """Whether the rank with the shortest total wait has it in more parts, and by more, than equal ranks would."""
    from scipy.special import bdtrc, stdtr

    several = [window for window in windows if len(window.get("rank_exchange_ms") or []) > 1]
    waits = numpy.array([window["rank_exchange_ms"] for window in several])
    n, size = min(MOST_PARTS, len(waits)), waits.shape[1]
    starts = [part * len(waits) // n for part in range(n)]
    parts = numpy.add.reduceat(waits, starts)
    slow = waits.sum(axis=0).argmin()
    alone = (parts == parts.min(axis=1, keepdims=True)).sum(axis=1) == 1
    shortest = int((alone & (parts.argmin(axis=1) == slow)).sum())
    chance = float(bdtrc(shortest - 1, n, 1 / size)) if shortest else 1.0
    if n < FEWEST_PARTS or size * chance > ALLOWED:
        return False
    shares = parts / numpy.add.reduceat([max(window["rank_ms"]) for window in several], starts)[:, None]
    ahead = (shares.mean(axis=1, keepdims=True) - shares) * size / (size - 1)
    counted, spread = _counted_parts(ahead), float(ahead[:, slow].std(ddof=1))
    if spread == 0.0:
        return True
    distance = float(ahead[:, slow].mean()) / spread * counted**0.5
    return bool(size * stdtr(int(counted) - 1, -distance) <= ALLOWED_OF_DRIFT)


def _counted_parts(ahead: numpy.ndarray) -> float:
    """How many independent parts tell as much as these (parts x ranks): adjacent parts are alike in a drift."""
    n, rest = len(ahead), ahead - ahead.mean(axis=0)
    whole = float((rest**2).sum())
    alike = (n * float((rest[1:] * rest[:-1]).sum()) / whole + 1) / (n - 3) if whole else 0.0
    alike = float(numpy.clip(alike, 0.0, 0.99))
    return max(n * (1 - alike) / (1 + alike), min(COUNTED_PARTS, n))


def waited_in_vain(windows: Windows) -> float:
    """How long others wait for the rank that waits least, minus its extra time for data and garbage collection."""
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


def was_journaled(cause: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a share of this cause other than 0 was journaled: earlier versions also journaled noise."""
    key = quantities.bottleneck(cause)
    return any(row["values"].get(key) for row in rows if row["kind"] == "metrics")


def on_cores(means: Mapping[str, float], update: float | None, training: float) -> Iterator[tuple[str, float]]:
    """The shares of a run on CPUs, in order; an update of the weights is deducted from the cores' work."""
    if update is not None:
        yield "update", update
    if "run_cpu" in means:
        yield "processor", (training - (update or 0.0)) * means["run_cpu"] / 100
    if "neighbours_cpu" in means:
        yield "neighbours", training * means["neighbours_cpu"] / 100
