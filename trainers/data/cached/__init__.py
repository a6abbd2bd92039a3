"""Arrays that were made of files once, kept in the user's cache. Of processes that start together one makes them."""

from __future__ import annotations

from trainers.data.cached.arrays import Arrays, cached_arrays

__all__ = ["Arrays", "cached_arrays"]
