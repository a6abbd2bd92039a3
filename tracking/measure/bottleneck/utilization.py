"""How busy a run kept its hardware: means over its training that a report shows beside its speed.

For a GPU's links these are their traffic and their ceiling, the copy between the slowest pair of the GPUs in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from tracking.base import quantities
from tracking.measure.bottleneck.ceilings import Ceilings

PREFIX = quantities.UTILIZATION
PAIR = quantities.CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC


def figures(means: Mapping[str, float], measured: Ceilings | None, indices: Sequence[int]) -> dict[str, float]:
    """The metrics by MLflow key. `means` come from `activity.means`, `indices` are the GPUs in use."""
    sensors = {key: key.removeprefix(PREFIX) for key in quantities.OF_HARDWARE}
    values = {key: means[sensor] for key, sensor in sensors.items() if sensor in means}
    slowest = slowest_pair(measured, indices)
    return {key: round(value, 2) for key, value in values.items()} | (
        {PAIR: round(slowest / 1e6, 2)} if slowest is not None else {}
    )


def slowest_pair(measured: Ceilings | None, indices: Sequence[int]) -> float | None:
    """Bytes/s from GPU to GPU for the slowest pair and direction; None if a pair was not measured."""
    if measured is None:
        return None
    rates = [measured.rate(f"peer/{sender}-{receiver}") for sender, receiver in permutations(indices, 2)]
    known = [rate for rate in rates if rate is not None]
    return min(known) if known and len(known) == len(rates) else None
