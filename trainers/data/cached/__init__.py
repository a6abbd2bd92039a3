"""A cache of arrays and folders of files. If several processes need an entry at once, one of them makes it."""

from trainers.data.cached.arrays import Arrays, cached_arrays
from trainers.data.cached.folders import cached_folder

__all__ = ["Arrays", "cached_arrays", "cached_folder"]
