"""Time steps and keep losses without making the device wait.

On a GPU, the device itself records events that time a step. The events and the losses are read a window later, when
the device has long recorded them. So neither host nor device waits for the other. A step's wait for data is then the
device's idle time; time that the host spent in the loader while the device was busy does not count. Nothing is copied
to the host within a step, since each copy would delay the device's next kernel by some microseconds.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch

from tracking.measure.training.logged import Entry


@dataclass
class Chunk:
    """The raw marks of consecutive steps of one rank. `start_mark` marks the start of the first step."""

    start_mark: object
    ready_marks: list[object] = field(default_factory=list)  # marked when the batch is ready
    done_marks: list[object] = field(default_factory=list)  # marked when the step is launched (GPU) or done (CPU)
    losses: list[torch.Tensor] = field(default_factory=list)
    samples: int = 0
    tokens: tuple[int, ...] = ()  # the tokens of source and target
    logged: list[Entry] = field(default_factory=list)  # values that the module logged up to the last of these steps
    # Index of the step; marks of the last gradient, the backward pass's end (None: unknown) and the optimizer's start.
    updates: list[tuple[int, object | None, object | None, object]] = field(default_factory=list)
    exchanges: list[tuple[int, object, object]] = field(default_factory=list)  # of a sharded model: step, start, end


class StepTimer:
    """Marks points on the device's timeline: CUDA events on a GPU, the monotonic clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._copy_stream = torch.cuda.Stream(device) if self._cuda else None

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

        Rows, in seconds but for the loss: the step; its wait for data; the loss (NaN if not kept); from the last
        gradient to the end of the backward pass; from there to the optimizer's step; the update of the weights.
        Waits until the device has passed the chunk's last mark.
        """
        if self._cuda:
            chunk.done_marks[-1].synchronize()  # type: ignore[attr-defined]
        starts = [chunk.start_mark, *chunk.done_marks[:-1]]
        return torch.tensor(
            [
                [self.seconds_between(start, end) for start, end in zip(starts, chunk.done_marks, strict=True)],
                [self.seconds_between(start, ready) for start, ready in zip(starts, chunk.ready_marks, strict=True)],
                self._loss_values(chunk.losses) or [math.nan] * len(chunk.done_marks),
                *self._update_rows(chunk),
            ],
            dtype=torch.float64,
        )

    def _update_rows(self, chunk: Chunk) -> list[list[float]]:
        """The last three rows of `read`. The update is timed only on a CPU."""
        exchanges, gaps, updates = ([0.0] * len(chunk.done_marks) for _ in range(3))
        for step, last_gradient, backward_end, update_start in chunk.updates:
            if step >= len(chunk.done_marks):
                continue
            if backward_end is not None:
                if last_gradient is not None:
                    exchanges[step] += self.seconds_between(last_gradient, backward_end)
                gaps[step] += self.seconds_between(backward_end, update_start)
            updates[step] = 0.0 if self._cuda else self.seconds_between(update_start, chunk.done_marks[step])
        for step, start, end in chunk.exchanges:
            exchanges[step] += self.seconds_between(start, end)
        return [exchanges, gaps, updates]

    def _loss_values(self, losses: list[torch.Tensor]) -> list[float]:
        """The losses as floats, copied on a separate stream: on the training stream they wait for later steps."""
        if not self._cuda or not losses:
            return [float(loss) for loss in losses]
        with torch.cuda.stream(self._copy_stream):
            return torch.stack([loss.detach().reshape(()).to(self._device, torch.float32) for loss in losses]).tolist()

    def seconds_between(self, start: object, end: object) -> float:
        """Seconds between two marks that the device has passed."""
        if self._cuda:
            return start.elapsed_time(end) / 1e3  # type: ignore[attr-defined,no-any-return]
        return end - start  # type: ignore[operator,no-any-return]
