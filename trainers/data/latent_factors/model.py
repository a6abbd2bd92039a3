"""The latent-factor model: users, items, their factors, the number of each user's ratings, and the picks.

Picks are the items that users choose. As many processes as cores draw them, and they do not depend on that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracking.base import installation
from trainers.data.cached.work_shares import in_shares, num_shares, while_parent_lives

ML_20M, USERS, ITEMS = 19_861_770, 138_493, 26_744  # training ratings, users and items of MovieLens 20M
FEWEST_ITEMS = 1000
FEWEST = 20  # ratings of a user, as in MovieLens
FACTORS, STRENGTH = 8, 1.2
POWER, FLAT = 1.0, 20  # popularity is (place + FLAT) ** -POWER
SPREAD = 1.38  # standard deviation of the logarithm of a user's ratings beyond 20
MOST = 1 / 3  # largest share of the items that a user rates
SEED = 20
CHUNK = 256  # users that share a generator of random numbers
BLOCK = 8  # users whose numbers stay in a core's cache during all operations
STRIDE = 16  # One in so many items is sampled to estimate the arrival of the last picked one.
PAIRS_PER_PROCESS = 100_000_000  # pairs of user and item, about a second of work


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


def all_picks(size: int, model: Model) -> np.ndarray:
    """Return the picks of all users of the model, user by user, ascending within a user: int32."""
    num = num_shares(len(model.counts) * model.num_items, PAIRS_PER_PROCESS)
    if num == 1:
        return picks_of_share(model, 0, 1)
    printed = in_shares(installation.module("trainers.data.latent_factors"), ["--size", str(size)], num)
    return np.concatenate([np.frombuffer(share, np.int32) for share in printed])


def picks_of_share(model: Model, share: int, of: int) -> np.ndarray:
    """Return the picks of a share of the users; the shares in order give `all_picks`."""
    chunks = range(0, len(model.counts), CHUNK)
    starts = chunks[len(chunks) * share // of : len(chunks) * (share + 1) // of]
    return np.concatenate(
        [np.empty(0, np.int32), *(row for start in while_parent_lives(starts) for row in _picks(model, start))]
    )


def _picks(model: Model, start: int) -> Iterator[np.ndarray]:
    """Yield the picks of each user of a chunk, int32, ascending.

    Each item arrives after an exponential time with its rate, and the first arrivals are picked. This is the same as
    drawing one by one without replacement (P. Efraimidis and P. Spirakis 2006, doi:10.1016/j.ipl.2005.11.003).
    """
    rng = np.random.RandomState([SEED, start])
    for first in range(start, min(start + CHUNK, len(model.counts)), BLOCK):
        rows = slice(first, min(first + BLOCK, start + CHUNK))
        waits = model.tastes[rows] @ model.kinds
        waits += model.popularity
        np.exp(np.negative(waits, out=waits), out=waits)
        arrivals = rng.random_sample(waits.shape)
        np.multiply(np.negative(np.log(arrivals, out=arrivals), out=arrivals), waits, out=arrivals)
        for row, count in zip(arrivals, model.counts[rows].tolist(), strict=True):
            yield np.sort(least(row, count)).astype(np.int32)


def least(row: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the `count` smallest numbers of a row [I], count < I, in any order.

    A sample of the row gives a bound, and only the few numbers below it are compared.
    """
    sample = row[::STRIDE]
    expected = count / STRIDE
    rank = int(expected + 4 * expected**0.5 + 4)
    below = np.flatnonzero(row <= np.partition(sample, rank)[rank]) if rank < len(sample) else np.arange(len(row))
    if len(below) <= count:
        below = np.arange(len(row))
    return below[np.argpartition(row[below], count)[:count]]
