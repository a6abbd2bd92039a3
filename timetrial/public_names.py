"""The public names that users import from `timetrial`, with their modules."""

from __future__ import annotations

import importlib
from typing import Any

from tracking.base import installation

MODULES = {
    # Your own training
    "TimeTrial": "tracking.lightning",
    "time_trial": "tracking.lightning",
    "Trial": "tracking.api",
    "HuggingFaceTimeTrial": "tracking.api",
    "KerasTimeTrial": "tracking.api",
    # Your own workload
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
    """Import a public name of `timetrial` on first use. Raises AttributeError for an unknown name."""
    if name not in MODULES:
        raise AttributeError(f"module 'timetrial' has no attribute {name!r}. It has: {', '.join(MODULES)}")
    return getattr(importlib.import_module(installation.module(MODULES[name])), name)


def __dir__() -> list[str]:
    """The public names, for `dir(timetrial)` and a shell's completion."""
    return list(MODULES)
