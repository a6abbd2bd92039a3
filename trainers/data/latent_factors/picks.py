"""The items that users pick, drawn by as many processes as there are cores; they do not depend on how many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracking.base import installation
from trainers.data.cached.work_shares import in_shares, num_shares, while_wanted
from trainers.data.latent_factors.model import SEED, Model

CHUNK = 256  # users that share a generator of random numbers
BLOCK = 8  # users whose numbers stay in a core's cache from the first to the last operation
STRIDE = 16  # One of so many items tells about where the last picked one arrives.
PAIRS_PER_PROCESS = 100_000_000  # of a user and an item: about a second's


def all_picks(size: int, model: Model) -> np.ndarray:
    """The items of all users of the model of this size, user by user, ascending within a user: int32."""
    num = num_shares(len(model.counts) * model.num_items, PAIRS_PER_PROCESS)
    if num == 1:
        return picks_of_share(model, 0, 1)
    printed = in_shares(installation.module("trainers.data.latent_factors"), ["--size", str(size)], num)
    return np.concatenate([np.frombuffer(share, np.int32) for share in printed])


def picks_of_share(model: Model, share: int, of: int) -> np.ndarray:
    """The same of a part of the users; the parts in order are all of them."""
    chunks = range(0, len(model.counts), CHUNK)
    own = chunks[len(chunks) * share // of : len(chunks) * (share + 1) // of]
    return np.concatenate(
        [np.empty(0, np.int32), *(row for start in while_wanted(own) for row in _picks(model, start))]
    )


def _picks(model: Model, start: int) -> Iterator[np.ndarray]:
    """What each user of a chunk picks, int32, ascending.

    A race: each item arrives after an exponential time of its rate, and the first ones are drawn, as if one by one
    without replacement (P. Efraimidis and P. Spirakis 2006, doi:10.1016/j.ipl.2005.11.003).
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
    """The places of the `count` least of a row [I], count < I, in any order.

    Few lie below a bound that a sample of the row gives; only those are compared.
    """
    sample = row[::STRIDE]
    expected = count / STRIDE
    rank = int(expected + 4 * expected**0.5 + 4)
    below = np.flatnonzero(row <= np.partition(sample, rank)[rank]) if rank < len(sample) else np.arange(len(row))
    if len(below) <= count:
        below = np.arange(len(row))
    return below[np.argpartition(row[below], count)[:count]]
