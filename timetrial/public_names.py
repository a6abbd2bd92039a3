"""The public names: what one's own code imports from `timetrial`, and the modules that hold them."""

from __future__ import annotations

import importlib
from typing import Any

from tracking.base import installation

MODULES = {
    # A training of one's own
    "TimeTrial": "tracking.lightning",
    "time_trial": "tracking.lightning",
    "Trial": "tracking.api",
    "HuggingFaceTimeTrial": "tracking.api",
    "KerasTimeTrial": "tracking.api",
    # A workload of one's own
    "TrialModule": "trainers.workload",
    "Workload": "trainers.workload",
    "ConfusionCounter": "trainers.ops.confusion.matrix",
    "confusion_cells": "trainers.ops.confusion.matrix",
    "SquareView": "trainers.data.crop",
    "View": "trainers.data.detection.view",
    "ConfigError": "conf.schema",
    # Its data
    "Batch": "trainers.workload",
    "ClassificationData": "trainers.workload",
    "Data": "trainers.workload",
    "DetectionData": "trainers.workload",
    "ImageData": "trainers.data.images",
    "Loader": "trainers.workload",
    "Shard": "trainers.workload",
    "coco": "trainers.data.detection",
    "digits": "trainers.data.digits",
    "imagenet": "trainers.data.image_folder",
    # A trained model
    "load_model": "trainers.loop.load_model",
}


def __getattr__(name: str) -> Any:
    """What `timetrial` calls for a name that it has not imported yet. Raises AttributeError for an unknown one."""
    if name not in MODULES:
        raise AttributeError(f"module 'timetrial' has no attribute {name!r}; it has {', '.join(MODULES)}")
    return getattr(importlib.import_module(installation.module(MODULES[name])), name)


def __dir__() -> list[str]:
    """What `dir(timetrial)` lists, for a shell's completion."""
    return list(MODULES)
