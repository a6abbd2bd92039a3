"""Draws the items that users pick, in as many processes as cores; the picks do not depend on their number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracking.base import installation
from trainers.data.cached.work_shares import in_shares, num_shares, while_parent_lives
from trainers.data.latent_factors.model import SEED, Model

CHUNK = 256  # users that share a generator of random numbers
BLOCK = 8  # users whose numbers stay in a core's cache during all operations
STRIDE = 16  # One in so many items is sampled to estimate the arrival of the last picked one.
PAIRS_PER_PROCESS = 100_000_000  # pairs of user and item, about a second of work


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
