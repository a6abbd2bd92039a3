"""Ratings as arrays: the items that each user rated, and the last one, which is held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainers.data.cached import Arrays


@dataclass(frozen=True)
class Interactions:
    """U users, I items and P training ratings; user u has the items start[u] to start[u + 1]."""

    num_items: np.ndarray  # int64, I
    start: np.ndarray  # int64 [U + 1]
    items: np.ndarray  # int32 [P], ascending and unique within a user
    held_out: np.ndarray  # int32 [U], different from the user's other items

    @property
    def num_users(self) -> int:
        return len(self.held_out)

    @property
    def num_train(self) -> int:
        return len(self.items)


def leave_last_out(users: np.ndarray, items: np.ndarray, times: np.ndarray, num_items: int) -> Arrays:
    """Return the arrays of `Interactions`, with each user's last rating held out; among equal times the last in order.

    Args:
        users, items: int64 [N], numbered from 0; every user has two or more ratings, all of different items
        times: [N], of any sortable dtype
    """
    order = np.lexsort((times, users))
    ends = np.cumsum(np.bincount(users))
    last = order[ends - 1]
    others = np.delete(order, ends - 1)
    return {
        "num_items": np.array(num_items),
        "start": np.concatenate(([0], ends - np.arange(1, len(ends) + 1))),
        "items": (np.sort(users[others] * num_items + items[others]) % num_items).astype(np.int32),
        "held_out": items[last].astype(np.int32),
    }


def hold_one_out(counts: np.ndarray, items: np.ndarray, times: np.ndarray, num_items: int) -> Arrays:
    """Do what `leave_last_out` does for ratings sorted by user, in a tenth of the time.

    Args:
        counts: int64 [U], ratings of each user, two or more
        items: int32 [N], user by user, ascending and unique within a user
        times: [N]
    """
    ends = np.cumsum(counts)
    starts = ends - counts
    latest = np.flatnonzero(times == np.repeat(np.maximum.reduceat(times, starts), counts))
    last = latest[np.searchsorted(latest, ends) - 1]  # among equal times the last in order
    return {
        "num_items": np.array(num_items),
        "start": np.concatenate(([0], ends - np.arange(1, len(ends) + 1))),
        "items": np.delete(items, last),
        "held_out": items[last],
    }
