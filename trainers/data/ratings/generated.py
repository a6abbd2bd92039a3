"""Ratings out of a latent-factor model, of any size up to MovieLens 20M's: the same for everybody, without a download.

User u picks item i, of those not yet picked, with a probability that is proportional to

    popularity(i) * exp(STRENGTH * taste(u) . kind(i))

Popularity falls with an item's place by a power law; tastes and kinds are normal vectors of FACTORS numbers. How much
users rate follows a log-normal distribution on top of 20 ratings, as MovieLens 20M's does. There is no time: the
held-out item is any one of a user's.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from conf.schema import ConfigError
from trainers.data.cached import Arrays, cached_arrays
from trainers.data.ratings.files import MIN_RATINGS
from trainers.data.ratings.interactions import Interactions, leave_last_out

FORMAT = 1  # The version of what is generated. Raise it when that changes.
ML_20M, USERS, ITEMS = 19_861_770, 138_493, 26_744  # MovieLens 20M's ratings to train on, users and items
SMALLEST, FEWEST_ITEMS = 1000, 1000
FACTORS, STRENGTH = 8, 1.2
POWER, FLAT = 1.0, 20  # popularity is (place + FLAT) ** -POWER
SPREAD = 1.38  # standard deviation of the logarithm of how many ratings users have beyond 20
MOST = 1 / 3  # share of the items that a user rates at most
CHUNK = 256  # users that are drawn at once
SEED = 20


def load(size: int) -> Interactions:
    """`size` ratings to train on, made once and kept in the cache. Raises ConfigError for a size that cannot be."""
    if not SMALLEST <= size <= ML_20M:
        raise ConfigError(
            f"dataset.size={size}: give from {SMALLEST} to {ML_20M} (as MovieLens 20M) ratings to train on"
        )
    return Interactions(**cached_arrays("ratings", [], str(size), FORMAT, lambda: generate(size)))


def generate(size: int) -> Arrays:
    """The arrays of `Interactions`, with users in proportion to the size and items to its square root."""
    num_users = round(size * USERS / ML_20M)
    num_items = max(FEWEST_ITEMS, round(ITEMS * (size / ML_20M) ** 0.5))
    rng = np.random.RandomState(SEED)
    counts = ratings_of_users(rng, num_users, num_items, size + num_users)
    popularity, tastes, kinds = latent(rng, num_users, num_items)
    first = range(0, num_users, CHUNK)

    def picked(start: int) -> np.ndarray:
        rows = slice(start, start + CHUNK)
        return pick(np.random.RandomState([SEED, start]), popularity + tastes[rows] @ kinds, counts[rows])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        items = np.concatenate(list(threads.map(picked, first)))
    users = np.repeat(np.arange(num_users), counts)
    return leave_last_out(users, items, rng.random_sample(len(items)), num_items)


def latent(rng: np.random.RandomState, num_users: int, num_items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logarithms of popularity [I], tastes [U, F] and kinds [F, I], so scaled that tastes @ kinds is what popularity
    is added to."""
    popularity = -POWER * np.log(np.arange(num_items) + FLAT)
    tastes = rng.standard_normal((num_users, FACTORS))
    return popularity, tastes, rng.standard_normal((FACTORS, num_items)) * STRENGTH


def ratings_of_users(rng: np.random.RandomState, num_users: int, num_items: int, total: int) -> np.ndarray:
    """How many ratings each user has, int64 [U] of the given sum: 20 at least, and not much above MOST of the items."""
    share = rng.lognormal(0, SPREAD, num_users)
    left = total - MIN_RATINGS * num_users
    for _ in range(5):  # What is taken from the greatest goes to all, and makes some too great again.
        share = np.minimum(share / share.sum(), (MOST * num_items - MIN_RATINGS) / left)
    bounds = np.floor(np.cumsum(share / share.sum()) * left + 0.5).astype(np.int64)
    return MIN_RATINGS + np.diff(bounds, prepend=0)


def pick(rng: np.random.RandomState, scores: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """counts[n] items for each row of scores [N, I], which are log-probabilities but for a constant: int64, row by row.

    A race: each item arrives after an exponential time of its rate, and the first ones are drawn, as if one by one
    without replacement (P. Efraimidis and P. Spirakis 2006, doi:10.1016/j.ipl.2005.11.003).
    """
    arrivals = -np.log(rng.random_sample(scores.shape)) * np.exp(-scores)
    rows = zip(arrivals, counts, strict=True)
    return np.concatenate([np.sort(np.argpartition(row, count)[:count]) for row, count in rows])
