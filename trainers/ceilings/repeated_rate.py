"""Measures a rate several times, together with the GPU's counters."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

NUM_REPEATS = 5
REPEAT_SEC = 0.3  # NVML's counters need windows of at least 0.1 s.
FIRST_SEC = 0.1  # The clock of an idle GPU takes this long to rise.


class Counters(Protocol):
    """NVML's counters, as tracking.machine.environment reads them: means since the previous reading."""

    def read(self) -> dict[str, float]: ...


def rate(
    work: Callable[[], object], amount: float, unit: str, device: torch.device, counters: Counters | None = None
) -> dict[str, Any]:
    """Return the rate of `work` in `unit` a second; one call does `amount` of it.

    The dictionary has median, lowest, highest and number of the repeats, and under `counters` the median of each
    counter. Medians, because the first window includes some time before it.
    """
    calls = _calls(work, device)
    rates: list[float] = []
    readings: list[dict[str, float]] = []
    for _ in range(NUM_REPEATS):
        if counters:
            counters.read()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        _finish(device)
        rates.append(calls * amount / (time.perf_counter() - start))
        if counters:
            readings.append(counters.read())
    middle = {key: statistics.median(reading.get(key, 0.0) for reading in readings) for key in (readings or [{}])[-1]}
    return {
        "unit": unit, "median": statistics.median(rates), "lowest": min(rates), "highest": max(rates),
        "n": len(rates), "counters": {key: round(value, 3) for key, value in middle.items()},
    }  # fmt: skip


def _calls(work: Callable[[], object], device: torch.device) -> int:
    """Return how many calls fill a repeat, timed while the device warms up."""
    work()
    _finish(device)
    number, start = 0, time.perf_counter()
    while time.perf_counter() - start < FIRST_SEC:
        work()
        _finish(device)
        number += 1
    each = (time.perf_counter() - start) / number
    return max(1, round(REPEAT_SEC / each))


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
