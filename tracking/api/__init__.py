"""Tracks a user's own training from inside: callbacks for frameworks, a context manager for any loop.

A companion process runs beside the script. It samples the machine, mirrors the run's folder to MLflow, and ends the run
if the script was killed. It outlives the script until everything is uploaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracking.api.lightning_callback import TimeTrial
from tracking.api.loop import Trial, time_trial

if TYPE_CHECKING:
    from tracking.api.huggingface import HuggingFaceTimeTrial
    from tracking.api.keras import KerasTimeTrial

__all__ = ["HuggingFaceTimeTrial", "KerasTimeTrial", "TimeTrial", "Trial", "time_trial"]
# Imported on demand, since each needs a framework that may not be installed.
LAZY_MODULES = {"HuggingFaceTimeTrial": "huggingface", "KerasTimeTrial": "keras"}


def __getattr__(name: str) -> Any:
    if name not in LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{LAZY_MODULES[name]}"), name)
