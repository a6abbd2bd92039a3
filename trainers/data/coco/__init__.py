"""COCO's annotations as an index of arrays, and COCO's metrics over any number of processes."""

from trainers.data.coco.average_precision import DetectionEvaluator
from trainers.data.coco.index import CocoIndex, load_index
from trainers.data.coco.overlaps import IouType

__all__ = ["CocoIndex", "DetectionEvaluator", "IouType", "load_index"]
