"""Sharded tensors: converting them to and from whole ones, and clipping sharded gradients."""

from __future__ import annotations

from trainers.ops.sharding.clipping import clip
from trainers.ops.sharding.sharded import is_sharded, local, part_of, resharded, whole

__all__ = ["clip", "is_sharded", "local", "part_of", "resharded", "whole"]
