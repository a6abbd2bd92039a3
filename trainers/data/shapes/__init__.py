"""Drawn images of shapes with exact annotations, made once and cached."""

from trainers.data.shapes.generated_files import ensure

__all__ = ["ensure"]
