"""How long the exchange of gradients takes, where it has a place of its own in the step.

A rank that comes early waits in it for the others. The exchange itself is therefore what the last rank to come sees,
which is the least of all.
"""

from __future__ import annotations

import statistics
from collections import deque

import torch

from tracking.measure.steps import Ranges
from tracking.measure.training.ranks import Ranks
from tracking.measure.training.step_timer import StepTimer

TIMED_EVERY = 10  # exchanges; two marks for each would be too many
KEPT = 200


class ExchangeTimer:
    """A context manager around each exchange. It times some of them, by the device's clock, without waiting for it."""

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
        """Leave out what came so far: in a warm-up, processes wait in the exchange for each other's compilers."""
        self._spans.clear()

    def mean_sec(self, ranks: Ranks) -> float | None:
        """Seconds of an exchange: the mean of the rank on which it is least. None where none was timed; collective."""
        own = [self._timer.between(*span) for span in self._spans]
        means = ranks.gather(torch.tensor([statistics.mean(own) if own else torch.nan], dtype=torch.float64))
        least = float(means.min())
        return least if least == least else None
