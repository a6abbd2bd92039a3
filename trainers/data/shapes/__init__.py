"""Drawn images of shapes with exact annotations, made once and kept in the cache."""

from __future__ import annotations

from trainers.data.shapes.files import ensure

__all__ = ["ensure"]
