"""Measurement in the worker: one callback, and the arithmetic that turns its events into figures.

The callback's hooks append events to the journal. They wait for the device only at the edges of windows. Clock,
throughput and summary are pure functions of these events. PyTorch and Lightning are imported on first use: the worker
of a program needs only the figures, and may have neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracking.base import installation
from tracking.measure.training import clock, spans, start_times, summary, throughput
from tracking.measure.training.evaluation_plan import EvaluationPlan, plan_evaluations

if TYPE_CHECKING:
    from tracking.measure.training.callback import MeasuringCallback as MeasuringCallback
    from tracking.measure.training.callback import epochs_trained as epochs_trained
    from tracking.measure.training.exchange import ExchangeTimer as ExchangeTimer
    from tracking.measure.training.failure_kind import classify as classify
    from tracking.measure.training.meter import Meter as Meter
    from tracking.measure.training.meter import NonFiniteLoss as NonFiniteLoss
    from tracking.measure.training.ranks import Ranks as Ranks

__all__ = [
    "EvaluationPlan", "ExchangeTimer", "MeasuringCallback", "Meter", "NonFiniteLoss", "Ranks", "classify", "clock",
    "epochs_trained", "plan_evaluations", "spans", "start_times", "summary", "throughput",
]  # fmt: skip
WITH_TORCH = {
    "ExchangeTimer": "exchange",
    "Meter": "meter",
    "NonFiniteLoss": "meter",
    "Ranks": "ranks",
    "MeasuringCallback": "callback",
    "classify": "failure_kind",
    "epochs_trained": "callback",
}


def __getattr__(name: str) -> Any:
    if name not in WITH_TORCH:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    package = installation.module("tracking.measure.training")
    return getattr(importlib.import_module(f"{package}.{WITH_TORCH[name]}"), name)
