"""Times steps and keeps losses without ever making the device wait.

On a GPU a step is timed by events that the device itself records, and its loss is copied to pinned memory behind
it; both are read a window later, when they have long been there. So the host never waits for the device and the
device never waits for the host, and the time that a step waited for its data is the device's idle time, not the
time that the host spent in the loader while the device was busy anyway.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch

from tracking.measure.logged import Entry


@dataclass
class Chunk:
    """The raw marks of some consecutive steps of one rank; `previous` is where the first one began."""

    previous: object
    ready: list[object] = field(default_factory=list)  # A mark is set when the batch is there.
    done: list[object] = field(default_factory=list)  # A mark is set when the step is launched, or done.
    losses: list[torch.Tensor] = field(default_factory=list)
    samples: int = 0
    tokens: tuple[int, ...] = ()  # the tokens of source and target
    logged: list[Entry] = field(default_factory=list)  # The module logged it until the last of these steps.


class StepTimer:
    """Marks points on the device's timeline: CUDA events on a GPU, the monotonic clock on a CPU."""

    def __init__(self, device: torch.device, window_steps: int) -> None:
        self._cuda = device.type == "cuda"
        # Two windows can be under way: the one being filled and the one before it, not yet read.
        self._slots = torch.empty(2 * window_steps, pin_memory=True) if self._cuda else None
        self._next_slot = 0

    def mark(self) -> object:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def keep(self, loss: torch.Tensor) -> torch.Tensor:
        """A copy of a scalar loss that can be read on the host once the step's mark has passed."""
        if self._slots is None:
            return loss.detach()
        slot = self._slots[self._next_slot]
        self._next_slot = (self._next_slot + 1) % len(self._slots)
        slot.copy_(loss.detach(), non_blocking=True)
        return slot

    def read(self, chunk: Chunk) -> torch.Tensor:
        """Seconds a step, seconds of it waited for data, and the loss (NaN where none was kept): float64, (3, steps).

        Returns at once where the device has passed the chunk's last mark, else waits for it.
        """
        if self._cuda:
            chunk.done[-1].synchronize()  # type: ignore[attr-defined]
        starts = [chunk.previous, *chunk.done[:-1]]
        return torch.tensor(
            [
                [self.between(start, end) for start, end in zip(starts, chunk.done, strict=True)],
                [self.between(start, ready) for start, ready in zip(starts, chunk.ready, strict=True)],
                [float(loss) for loss in chunk.losses] or [math.nan] * len(chunk.done),
            ],
            dtype=torch.float64,
        )

    def between(self, start: object, end: object) -> float:
        """Seconds between two marks that the device has passed."""
        if self._cuda:
            return start.elapsed_time(end) / 1e3  # type: ignore[attr-defined,no-any-return]
        return end - start  # type: ignore[operator,no-any-return]
