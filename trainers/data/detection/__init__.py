"""Detection data: COCO and drawn objects from files, or generated ones, cropped and resized as a view says."""

from tracking.base import old_paths
from trainers.data.detection.data import CocoData, coco, shapes

__all__ = ["CocoData", "coco", "shapes"]


old_paths.watch(__name__)
