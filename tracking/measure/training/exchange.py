"""The duration of the gradient exchange, for steps that exchange gradients in one place.

A rank that arrives early waits in the exchange for the others. The last rank to arrive does not wait, so the exchange
itself takes the shortest time over ranks.
"""

from __future__ import annotations

import statistics
from collections import deque

import torch

from tracking.measure.steps import Ranges
from tracking.measure.training.ranks import Ranks
from tracking.measure.training.step_timer import StepTimer

TIMED_EVERY = 10  # times every tenth exchange; timing each would cost too much
MAX_SPANS = 200  # keeps the last 200 timed exchanges


class ExchangeTimer:
    """A context manager around each exchange. It times every tenth by the device's clock, without a wait."""

    def __init__(self, device: torch.device) -> None:
        self._timer = StepTimer(device)
        self._spans: deque[tuple[object, object]] = deque(maxlen=MAX_SPANS)
        self._num_calls = 0
        self._start: object = None
        self.ranges = Ranges()

    def __enter__(self) -> None:
        self.ranges.enter("exchange")
        self._num_calls += 1
        if self._num_calls % TIMED_EVERY == 0:
            self._start = self._timer.mark()

    def __exit__(self, *_: object) -> None:
        if self._num_calls % TIMED_EVERY == 0:
            self._spans.append((self._start, self._timer.mark()))
        self.ranges.leave("exchange")

    def clear(self) -> None:
        """Drop the times so far, such as those of a warm-up, in which processes wait for each other's compilers."""
        self._spans.clear()

    def mean_sec(self, ranks: Ranks) -> float | None:
        """Seconds of an exchange: the mean of the rank with the smallest mean; None without a timed one. Collective."""
        seconds = [self._timer.seconds_between(*span) for span in self._spans]
        means = ranks.gather(torch.tensor([statistics.mean(seconds) if seconds else torch.nan], dtype=torch.float64))
        shortest = float(means.min())
        return shortest if shortest == shortest else None
