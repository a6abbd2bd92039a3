"""A training that somebody else wrote, tracked from inside: a callback for Lightning, a context manager for any loop.

Beside the script runs a companion process. It samples the machine, mirrors the run's folder to MLflow and ends the run
where the script was killed, and it outlives the script by as long as the upload takes.
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
# Each needs a framework that only its user has.
LATER = {"HuggingFaceTimeTrial": "huggingface", "KerasTimeTrial": "keras"}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{LATER[name]}"), name)
