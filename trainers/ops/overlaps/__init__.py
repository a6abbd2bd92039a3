"""Overlaps of many anchors with the few objects of an image, without a matrix of all pairs."""

from __future__ import annotations

from trainers.ops.overlaps.best_overlaps import best_overlaps

__all__ = ["best_overlaps"]
