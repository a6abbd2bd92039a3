"""Measures matrix products in each precision, copies within memory, and transfers between host, GPUs and disk."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

SIZE = {"cuda": 8192, "cpu": 1024}
COPY_BYTES = {"cuda": 2**30, "cpu": 2**27}  # larger than any cache
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LINK_BYTES = 2**28
DISK_BYTES = 2**28
BLOCK_BYTES = 2**22
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


def matrix_product(precision: str, device: torch.device, counters: Counters | None) -> dict[str, Any]:
    """Return the FLOP/s of a square product, at 2 n^3 operations. Raises RuntimeError if the device cannot do it."""
    size = SIZE[device.type]
    a, b = (torch.randn(size, size, device=device).to(DTYPES[precision]) for _ in range(2))
    out = torch.empty_like(a)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        return rate(lambda: torch.mm(a, b, out=out), 2.0 * size**3, "FLOP/s", device, counters)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def precisions(device: torch.device) -> list[str]:
    """Return the precisions of DTYPES for which the device has matrix units."""
    if device.type == "cpu":
        return ["fp32"]
    names = ["fp32", "fp16"]
    if torch.cuda.get_device_capability(device) >= (8, 0):
        names += ["tf32", "bf16"]
    return names


def copy(device: torch.device, counters: Counters | None) -> dict[str, Any]:
    """Return the bytes/s of a copy within the device's memory, reads and writes together."""
    source = torch.zeros(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return rate(lambda: target.copy_(source), 2.0 * source.nbytes, "B/s", device, counters)


def host(device: torch.device, to_device: bool, counters: Counters | None) -> dict[str, Any]:
    """Return the bytes/s between pinned memory and the GPU."""
    pinned = torch.zeros(LINK_BYTES, dtype=torch.uint8).pin_memory()
    on_gpu = torch.zeros_like(pinned, device=device)
    source, target = (pinned, on_gpu) if to_device else (on_gpu, pinned)
    return rate(lambda: target.copy_(source, non_blocking=True), LINK_BYTES, "B/s", device, counters)


def peers(sender: int, receiver: int, counters: Counters | None) -> dict[str, Any]:
    """Return the bytes/s that one GPU sends to another, by index; `counters` are the sender's."""
    source = torch.zeros(LINK_BYTES, dtype=torch.uint8, device=f"cuda:{sender}")
    target = torch.empty_like(source, device=f"cuda:{receiver}")
    direct = torch.cuda.can_device_access_peer(sender, receiver)
    measured = rate(lambda: target.copy_(source, non_blocking=True), LINK_BYTES, "B/s", source.device, counters)
    return measured | {"direct": direct}


def disk(folder: Path) -> dict[str, Any]:
    """Return the bytes/s of reading a new file in `folder`, not from the page cache. Raises OSError."""
    rates = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".ceiling-") as file:
        for _ in range(DISK_BYTES // BLOCK_BYTES):
            file.write(os.urandom(BLOCK_BYTES))
        file.flush()
        os.fsync(file.fileno())
        for _ in range(NUM_REPEATS):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            rates.append(_read(file.fileno()))
    rates.sort()
    return {
        "unit": "B/s", "median": rates[len(rates) // 2], "lowest": rates[0], "highest": rates[-1], "n": len(rates),
        "counters": {},
    }  # fmt: skip


def _read(descriptor: int) -> float:
    start = time.perf_counter()
    place = 0
    while block := os.pread(descriptor, BLOCK_BYTES, place):
        place += len(block)
    return place / (time.perf_counter() - start)
