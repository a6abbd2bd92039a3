"""Time steps and keep losses without making the device wait.

On a GPU, the device itself records events that time a step. The events and the losses are read a window later, when
they have long been recorded. So neither host nor device waits for the other. A step's wait for data is then the
device's idle time, without time that the host spent in the loader while the device was busy. Nothing is copied to the
host within a step, since each copy would delay the device's next kernel by some microseconds.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch

from tracking.measure.training.logged import Entry


@dataclass
class Chunk:
    """The raw marks of consecutive steps of one rank. `previous` marks the start of the first step."""

    previous: object
    ready: list[object] = field(default_factory=list)  # marked when the batch is ready
    done: list[object] = field(default_factory=list)  # marked when the step is launched (GPU) or done (CPU)
    losses: list[torch.Tensor] = field(default_factory=list)
    samples: int = 0
    tokens: tuple[int, ...] = ()  # the tokens of source and target
    logged: list[Entry] = field(default_factory=list)  # values that the module logged up to the last of these steps
    # Step of the chunk, last gradient, end of its backward pass (None: not seen), start of the optimizer's step.
    updates: list[tuple[int, object | None, object | None, object]] = field(default_factory=list)


class StepTimer:
    """Marks points on the device's timeline: CUDA events on a GPU, the monotonic clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._aside = torch.cuda.Stream(device) if self._cuda else None

    def mark(self) -> object:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured; a mark would become part of it."""
        return self._cuda and torch.cuda.is_current_stream_capturing()

    def read(self, chunk: Chunk) -> torch.Tensor:
        """The chunk's figures by step: float64, shape (6, steps).

        Rows: seconds of the step, seconds of it waiting for data, the loss (NaN if not kept), then seconds of the step
        from the last gradient to the end of the backward pass, from there to the optimizer, and in the update of the
        weights. Waits until the device has passed the chunk's last mark.
        """
        if self._cuda:
            chunk.done[-1].synchronize()  # type: ignore[attr-defined]
        starts = [chunk.previous, *chunk.done[:-1]]
        return torch.tensor(
            [
                [self.between(start, end) for start, end in zip(starts, chunk.done, strict=True)],
                [self.between(start, ready) for start, ready in zip(starts, chunk.ready, strict=True)],
                self._numbers(chunk.losses) or [math.nan] * len(chunk.done),
                *self._within(chunk),
            ],
            dtype=torch.float64,
        )

    def _within(self, chunk: Chunk) -> list[list[float]]:
        """The last three rows of `read`. The update is timed only on a CPU."""
        exchanges, others, updates = ([0.0] * len(chunk.done) for _ in range(3))
        for step, gradient, ended, begins in chunk.updates:
            if step < len(chunk.done):
                exchanges[step] += self.between(gradient, ended) if gradient is not None and ended is not None else 0.0
                others[step] += self.between(ended, begins) if ended is not None else 0.0
                updates[step] = 0.0 if self._cuda else self.between(begins, chunk.done[step])
        return [exchanges, others, updates]

    def _numbers(self, losses: list[torch.Tensor]) -> list[float]:
        """The losses as floats. A separate stream copies them, since on the training stream they would queue behind
        later steps."""
        if not self._cuda or not losses:
            return [float(loss) for loss in losses]
        with torch.cuda.stream(self._aside):
            return torch.stack([loss.detach().reshape(()).to(self._device, torch.float32) for loss in losses]).tolist()

    def between(self, start: object, end: object) -> float:
        """Seconds between two marks that the device has passed."""
        if self._cuda:
            return start.elapsed_time(end) / 1e3  # type: ignore[attr-defined,no-any-return]
        return end - start  # type: ignore[operator,no-any-return]
