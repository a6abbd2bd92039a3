"""Tensors of which each process has a part: the whole ones, and what is done with all of them."""

from __future__ import annotations

from trainers.ops.sharding.clipping import clip
from trainers.ops.sharding.sharded import is_sharded, local, part_of, resharded, whole

__all__ = ["clip", "is_sharded", "local", "part_of", "resharded", "whole"]
