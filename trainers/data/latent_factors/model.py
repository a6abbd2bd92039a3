"""The latent-factor model: users, items, their factors, and the number of each user's ratings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ML_20M, USERS, ITEMS = 19_861_770, 138_493, 26_744  # training ratings, users and items of MovieLens 20M
FEWEST_ITEMS = 1000
FEWEST = 20  # ratings of a user, as in MovieLens
FACTORS, STRENGTH = 8, 1.2
POWER, FLAT = 1.0, 20  # popularity is (place + FLAT) ** -POWER
SPREAD = 1.38  # standard deviation of the logarithm of a user's ratings beyond 20
MOST = 1 / 3  # largest share of the items that a user rates
SEED = 20


@dataclass(frozen=True)
class Model:
    """A model with U users and I items, which its size determines. `rng` has drawn the other fields."""

    num_items: int
    counts: np.ndarray  # int64 [U], ratings of each user
    tastes: np.ndarray  # [U, FACTORS]
    kinds: np.ndarray  # [FACTORS, I], times STRENGTH
    popularity: np.ndarray  # [I], logarithms
    rng: np.random.RandomState

    @classmethod
    def of_size(cls, size: int) -> Model:
        """Return the model with `size` ratings plus one for each user.

        The number of users is proportional to the size, that of items to its square root.
        """
        num_users = round(size * USERS / ML_20M)
        num_items = max(FEWEST_ITEMS, round(ITEMS * (size / ML_20M) ** 0.5))
        rng = np.random.RandomState(SEED)
        counts = ratings_of_users(rng, num_users, num_items, size + num_users)
        popularity = -POWER * np.log(np.arange(num_items) + FLAT)
        tastes = rng.standard_normal((num_users, FACTORS))
        return cls(num_items, counts, tastes, rng.standard_normal((FACTORS, num_items)) * STRENGTH, popularity, rng)


def ratings_of_users(rng: np.random.RandomState, num_users: int, num_items: int, total: int) -> np.ndarray:
    """Return the number of each user's ratings, int64 [U], with the sum `total`: 20 to about MOST of the items."""
    share = rng.lognormal(0, SPREAD, num_users)
    left = total - FEWEST * num_users
    for _ in range(5):  # Normalising after the clip raises some users above the limit again, so repeat.
        share = np.minimum(share / share.sum(), (MOST * num_items - FEWEST) / left)
    bounds = np.floor(np.cumsum(share / share.sum()) * left + 0.5).astype(np.int64)
    return FEWEST + np.diff(bounds, prepend=0)
