"""Ratings as arrays: which items each user rated, and the last of them, which is held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainers.data.cached import Arrays


@dataclass(frozen=True)
class Interactions:
    """U users, I items and P ratings to train on; user u has the items start[u] to start[u + 1]."""

    num_items: np.ndarray  # int64, I
    start: np.ndarray  # int64 [U + 1]
    items: np.ndarray  # int32 [P], ascending within a user, each once
    held_out: np.ndarray  # int32 [U], an item that is none of the user's others

    @property
    def num_users(self) -> int:
        return len(self.held_out)

    @property
    def num_train(self) -> int:
        return len(self.items)


def leave_last_out(users: np.ndarray, items: np.ndarray, times: np.ndarray, num_items: int) -> Arrays:
    """The arrays of `Interactions`: each user's last rating is held out, of equal times the one that comes last.

    Args:
        users, items: int64 [N], numbered from 0; every user has two ratings or more, and none twice
        times: [N], of any kind that sorts
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
    """The same of users one behind the other, in a tenth of the time.

    Args:
        counts: int64 [U], ratings of each user, two or more
        items: int32 [N], user by user, ascending within a user, each once
        times: [N]
    """
    ends = np.cumsum(counts)
    starts = ends - counts
    latest = np.flatnonzero(times == np.repeat(np.maximum.reduceat(times, starts), counts))
    last = latest[np.searchsorted(latest, ends) - 1]  # of equal times the one that comes last
    return {
        "num_items": np.array(num_items),
        "start": np.concatenate(([0], ends - np.arange(1, len(ends) + 1))),
        "items": np.delete(items, last),
        "held_out": items[last],
    }
