"""How many users and items there are, what they are like, and how much each user rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ML_20M, USERS, ITEMS = 19_861_770, 138_493, 26_744  # MovieLens 20M's ratings to train on, users and items
FEWEST_ITEMS = 1000
FEWEST = 20  # a user's ratings, as MovieLens' users have
FACTORS, STRENGTH = 8, 1.2
POWER, FLAT = 1.0, 20  # popularity is (place + FLAT) ** -POWER
SPREAD = 1.38  # standard deviation of the logarithm of how many ratings users have beyond 20
MOST = 1 / 3  # share of the items that a user rates at most
SEED = 20


@dataclass(frozen=True)
class Model:
    """U users and I items, and what follows from a size alone. `rng` has drawn all that is here."""

    num_items: int
    counts: np.ndarray  # int64 [U], ratings of each user
    tastes: np.ndarray  # [U, FACTORS]
    kinds: np.ndarray  # [FACTORS, I], times STRENGTH
    popularity: np.ndarray  # [I], logarithms
    rng: np.random.RandomState

    @classmethod
    def of_size(cls, size: int) -> Model:
        """The model with `size` ratings and one more of each user: users in proportion to the size, items to its
        square root."""
        num_users = round(size * USERS / ML_20M)
        num_items = max(FEWEST_ITEMS, round(ITEMS * (size / ML_20M) ** 0.5))
        rng = np.random.RandomState(SEED)
        counts = ratings_of_users(rng, num_users, num_items, size + num_users)
        popularity = -POWER * np.log(np.arange(num_items) + FLAT)
        tastes = rng.standard_normal((num_users, FACTORS))
        return cls(num_items, counts, tastes, rng.standard_normal((FACTORS, num_items)) * STRENGTH, popularity, rng)


def ratings_of_users(rng: np.random.RandomState, num_users: int, num_items: int, total: int) -> np.ndarray:
    """How many ratings each user has, int64 [U] of the given sum: 20 at least, and not much above MOST of the items."""
    share = rng.lognormal(0, SPREAD, num_users)
    left = total - FEWEST * num_users
    for _ in range(5):  # What is taken from the greatest goes to all, and makes some too great again.
        share = np.minimum(share / share.sum(), (MOST * num_items - FEWEST) / left)
    bounds = np.floor(np.cumsum(share / share.sum()) * left + 0.5).astype(np.int64)
    return FEWEST + np.diff(bounds, prepend=0)
