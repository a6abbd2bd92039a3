"""The confusion matrix of a classifier. This package is also an old import path of two names of `timetrial`."""

from __future__ import annotations

from tracking.base import old_paths
from trainers.ops.confusion.matrix import ConfusionCounter, confusion_cells

__all__ = ["ConfusionCounter", "confusion_cells"]
old_paths.watch(__name__)
