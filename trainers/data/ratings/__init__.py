"""Ratings, MovieLens' files or generated ones; each epoch draws new negatives on the device.

A sample is a pair of user and item, either with a rating (a positive) or without one (a negative).
"""

from trainers.data.ratings.data import RatingsData, movielens, ratings
from trainers.data.ratings.synthetic import SyntheticRatings

__all__ = ["RatingsData", "SyntheticRatings", "movielens", "ratings"]
