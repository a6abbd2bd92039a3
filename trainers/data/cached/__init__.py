"""What is made once and kept: arrays and folders of files. Of processes that start together one makes them."""

from __future__ import annotations

from trainers.data.cached.arrays import Arrays, cached_arrays
from trainers.data.cached.folders import cached_folder

__all__ = ["Arrays", "cached_arrays", "cached_folder"]
