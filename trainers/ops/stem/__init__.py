"""The first layers of a ResNet, whose maps are its largest, in a form that a GPU computes faster."""

from __future__ import annotations

from trainers.ops.stem.norm_relu_pool import NormReluPool
from trainers.ops.stem.space_to_depth import SpaceToDepthConv

__all__ = ["NormReluPool", "SpaceToDepthConv"]
