"""Kernels and copies that a device runs in a few steps."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile


class Kernel(NamedTuple):
    """A kernel or a copy; microseconds."""

    start: float
    end: float
    name: str


def recorded(step: Callable[[], None], num: int, device: torch.device) -> list[Kernel]:
    """Kernels and copies of `num` steps, sorted by start; an empty list without a GPU."""
    if device.type != "cuda":
        return []
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(num):
            step()
        wait(device)
    return sorted(
        Kernel(event.time_range.start, event.time_range.end, event.name)
        for event in profiler.events() or ()
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
    )


def summed(kernels: list[Kernel], num: int) -> tuple[float, float, float, float]:
    """Means of a step over `num` steps: ms busy, ms of computation, ms of NCCL, and number of kernels."""
    busy, until = 0.0, 0.0
    for start, end, _ in kernels:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    nccl = sum(end - start for start, end, name in kernels if name.startswith("nccl"))
    total = sum(end - start for start, end, _ in kernels)
    share = 1e-3 / num
    return busy * share, (total - nccl) * share, nccl * share, len(kernels) / num


def longest(kernels: list[Kernel], num: int, top: int) -> Iterator[str]:
    """A line for each of the `top` longest kernels: milliseconds and calls a step."""
    by_name: dict[str, list[float]] = {}
    for start, end, name in kernels:
        by_name.setdefault(name, []).append(end - start)
    for name, spans in sorted(by_name.items(), key=lambda item: -sum(item[1]))[:top]:
        yield f"    {1e-3 / num * sum(spans):7.3f} ms  x {len(spans) / num:5.1f}  {name[:120]}"


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
