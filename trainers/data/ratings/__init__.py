"""Who rated what: MovieLens' files or generated ratings, each epoch with fresh negatives that are drawn on the device.

A sample is a pair of a user and an item, either one that was rated (a positive) or one that was not (a negative).
"""

from __future__ import annotations

from trainers.data.ratings.data import RatingsData, movielens, ratings
from trainers.data.ratings.synthetic import SyntheticRatings

__all__ = ["RatingsData", "SyntheticRatings", "movielens", "ratings"]
