"""Detection data: COCO and drawn objects from files, or generated ones, cut and resized as a detector wants them."""

from __future__ import annotations

from tracking.base import old_paths
from trainers.data.detection.data import CocoData, coco, shapes

__all__ = ["CocoData", "coco", "shapes"]


old_paths.watch(__name__)
