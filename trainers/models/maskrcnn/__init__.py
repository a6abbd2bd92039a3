"""Mask R-CNN with a ResNet-50 and a feature pyramid."""

from __future__ import annotations

from trainers.models.maskrcnn.module import WORKLOAD, MaskRcnn
from trainers.models.maskrcnn.roi_heads import nms_of_classes

__all__ = ["WORKLOAD", "MaskRcnn", "nms_of_classes"]
