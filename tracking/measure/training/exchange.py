"""The duration of the gradient exchange, for steps that exchange gradients in one place.

A rank that arrives early waits in the exchange for the others. So the exchange itself takes as long as the last rank
sees, which is the shortest time over ranks.
"""

from __future__ import annotations

import statistics
from collections import deque

import torch

from tracking.measure.steps import Ranges
from tracking.measure.training.ranks import Ranks
from tracking.measure.training.step_timer import StepTimer

TIMED_EVERY = 10  # exchanges; marking each would cost too much
KEPT = 200  # the last timed exchanges


class ExchangeTimer:
    """A context manager around each exchange. It times every tenth by the device's clock, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self._timer = StepTimer(device)
        self._spans: deque[tuple[object, object]] = deque(maxlen=KEPT)
        self._calls = 0
        self._start: object = None
        self.ranges = Ranges()

    def __enter__(self) -> None:
        self.ranges.enter("exchange")
        self._calls += 1
        if self._calls % TIMED_EVERY == 0:
            self._start = self._timer.mark()

    def __exit__(self, *_: object) -> None:
        if self._calls % TIMED_EVERY == 0:
            self._spans.append((self._start, self._timer.mark()))
        self.ranges.leave("exchange")

    def forget(self) -> None:
        """Drop the times so far, such as those of a warm-up, in which processes wait for each other's compilers."""
        self._spans.clear()

    def mean_sec(self, ranks: Ranks) -> float | None:
        """Seconds of an exchange: the mean of the rank with the smallest mean; None without a timed one. Collective."""
        seconds = [self._timer.between(*span) for span in self._spans]
        means = ranks.gather(torch.tensor([statistics.mean(seconds) if seconds else torch.nan], dtype=torch.float64))
        least = float(means.min())
        return least if least == least else None
