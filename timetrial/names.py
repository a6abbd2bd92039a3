"""The names that one's own code imports from `timetrial`, and the modules that they are in."""

from __future__ import annotations

import importlib
from typing import Any

from tracking.base import installation

MODULES = {
    "TimeTrial": "tracking.lightning",
    "time_trial": "tracking.lightning",
    "TrialModule": "trainers.workload",
    "Workload": "trainers.workload",
}


def __getattr__(name: str) -> Any:
    """What `timetrial` calls for a name that is not imported yet. Raises AttributeError for one that it has not."""
    if name not in MODULES:
        raise AttributeError(f"module 'timetrial' has no attribute {name!r}; it has {', '.join(MODULES)}")
    return getattr(importlib.import_module(installation.module(MODULES[name])), name)
