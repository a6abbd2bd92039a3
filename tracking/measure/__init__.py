"""What measures in the worker: one callback, and the arithmetic that turns its events into figures.

The callback's hooks append events to the journal and wait for the device at a window's edges alone. Clock, throughput
and summary are pure functions of those events. Only the worker imports this room, since it needs PyTorch and
Lightning.
"""

from __future__ import annotations

from tracking.measure import summary, throughput
from tracking.measure.callback import NonFiniteLoss, TrialCallback

__all__ = ["NonFiniteLoss", "TrialCallback", "summary", "throughput"]
