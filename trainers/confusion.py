"""Old import path of two names of `timetrial`, kept for one release."""

from tracking.base import old_paths
from trainers.ops.confusion.matrix import ConfusionCounter, confusion_cells

__all__ = ["ConfusionCounter", "confusion_cells"]
old_paths.watch(__name__)
