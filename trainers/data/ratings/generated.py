"""Ratings that a latent-factor model makes, of any size up to MovieLens 20M's: the same for everybody, no download.

There is no time: the held-out item is any one of a user's.
"""

from __future__ import annotations

from conf.schema import ConfigError
from trainers.data.cached import Arrays, cached_arrays
from trainers.data.latent_factors import Model, all_picks
from trainers.data.latent_factors.model import ML_20M
from trainers.data.ratings.interactions import Interactions, hold_one_out

FORMAT = 1  # The version of what is generated. Raise it when that changes.
SMALLEST = 1000


def load(size: int) -> Interactions:
    """`size` ratings to train on, made once and kept in the cache. Raises ConfigError for a size that cannot be."""
    if not SMALLEST <= size <= ML_20M:
        raise ConfigError(
            f"dataset.size={size}: give from {SMALLEST} to {ML_20M} (as MovieLens 20M) ratings to train on"
        )
    return Interactions(**cached_arrays("ratings", [], str(size), FORMAT, lambda: generate(size)))


def generate(size: int) -> Arrays:
    """The arrays of `Interactions`, made by all cores."""
    model = Model.of_size(size)
    items = all_picks(size, model)
    return hold_one_out(model.counts, items, model.rng.random_sample(len(items)), model.num_items)
