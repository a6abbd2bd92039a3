"""Mask R-CNN with a ResNet-50 backbone and a feature pyramid."""

from __future__ import annotations

from trainers.models.maskrcnn.module import WORKLOAD, MaskRcnn

__all__ = ["WORKLOAD", "MaskRcnn"]
