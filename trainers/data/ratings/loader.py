"""Batches of an epoch and of an evaluation, assembled on the device without Python loops over samples.

A training batch has G groups, each of a positive and its negatives, which share a user:

    users    int64 [G]
    items    int64 [G, 1 + NUM_NEGATIVES], the positive first
    weights  float32 [G], weights of the groups; zero for padding of the last batch

An evaluation batch has E users:

    eval_users    int64 [E]
    candidates    int64 [E, NUM_CANDIDATES], the held-out item and others; -1 for a repeated one
    positions     int64 [E], place of the held-out item
    eval_weights  float32 [E], 1 or 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from conf.schema import ConfigError
from trainers.data.loading.order import EvalOrder, TrainOrder
from trainers.data.loading.position import Positioned
from trainers.data.ratings.draws import RatedItems
from trainers.ops.chance.counters import key_of, random_bits, shuffled

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

NUM_NEGATIVES = 4  # drawn for each positive, anew in every epoch
GROUP = 1 + NUM_NEGATIVES  # samples that share a user
NUM_CANDIDATES = 1000  # the held-out item and 999 that the user has not rated
ORDER, NEGATIVES, CANDIDATES = range(3)  # streams of random numbers


def groups_in(batch_size: int) -> int:
    """Return the number of groups in a batch of samples. Raises ConfigError if they do not fill it exactly."""
    if batch_size % GROUP:
        near = max(GROUP, batch_size - batch_size % GROUP)
        raise ConfigError(
            f"batch_size={batch_size}: counts positives and negatives, and each positive has {NUM_NEGATIVES} negatives."
            f" Next: give a multiple of {GROUP}, such as batch_size={near}"
        )
    return batch_size // GROUP


class TrainLoader(Positioned):
    """Yields every positive, with its negatives, exactly once an epoch over all processes.

    Seed and epoch determine order and negatives. A global batch does not depend on the number of processes.
    """

    def __init__(
        self, rated: Callable[[], RatedItems], num_positives: int, batch_size: int, seed: int, shard: Shard
    ) -> None:
        self.order = TrainOrder(num_positives, groups_in(batch_size), seed, shard)
        self._rated, self._epoch = rated, 0

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        order, shard, last = self.order, self.order.shard, len(self) - 1
        rated = self._rated()
        positives = shuffled(order.num_samples, key_of(order.seed, self._epoch, ORDER), shard.device)
        # As in TrainOrder, processes take turns in a global batch, and the last one is padded from the start.
        places = shard.rank + shard.world_size * torch.arange(order.batch_size, device=shard.device)
        weights = {0: order.weights(0), last: order.weights(last)}
        key = key_of(order.seed, self._epoch, NEGATIVES)
        for step in range(self.first_step(), len(self)):
            taken = positives[(places + step * order.batch_size * shard.world_size) % order.num_samples]
            users, items = groups(rated, taken, key)
            yield {
                "users": users,
                "items": items,
                "weights": weights[last if step == last else 0],
                "num_samples": order.num_real(step) * GROUP,
            }


def groups(rated: RatedItems, positives: torch.Tensor, key: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return users int64 [G] and items int64 [G, 1 + NUM_NEGATIVES] for positives int64 [G], places in `rated`."""
    if positives.is_cuda:
        from trainers.data.ratings import draws_triton

        return draws_triton.groups(rated, positives, key, NUM_NEGATIVES)
    users = rated.users[positives].long()
    counters = positives[:, None] * NUM_NEGATIVES + torch.arange(NUM_NEGATIVES, device=positives.device)
    negatives = rated.unrated(users[:, None].expand_as(counters), random_bits(counters, key))
    return users, torch.cat((rated.items[positives].long()[:, None], negatives), dim=1)


class EvalLoader:
    """Yields every user exactly once over all processes, with the same candidates in every evaluation of every run.

    The first evaluation draws the candidates and keeps them on the device as int32.
    """

    def __init__(
        self, rated: Callable[[], RatedItems], held_out: Callable[[], torch.Tensor], num_users: int, batch_size: int,
        shard: Shard,
    ) -> None:  # fmt: skip
        self.order = EvalOrder(num_users, max(1, batch_size // NUM_CANDIDATES), shard)
        self._rated, self._held_out = rated, held_out
        self._drawn: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: all evaluations are the same."""

    def __iter__(self) -> Iterator[Batch]:
        rows = torch.arange(self.order.batch_size, device=self.order.shard.device)
        for step in range(len(self)):
            users = (rows + self.order.first + step * self.order.batch_size).clamp(max=self.order.num_samples - 1)
            if step == len(self._drawn):
                items, positions = candidates(self._rated(), users, self._held_out()[users])
                self._drawn.append((items.int(), positions))
            items, positions = self._drawn[step]
            yield {
                "eval_users": users,
                "candidates": items.long(),
                "positions": positions,
                "eval_weights": self.order.weights(step),
                "num_samples": self.order.num_real(step),
            }


def candidates(rated: RatedItems, users: torch.Tensor, held_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the candidates of E users, int64 [E, NUM_CANDIDATES], and the place of the held-out item, int64 [E].

    As published, 999 items are drawn with replacement from those that the user did not rate in training, and the
    held-out item is appended. The draws may include it, too. For a repeated item the first place counts.
    """
    counters = users[:, None] * (NUM_CANDIDATES - 1) + torch.arange(NUM_CANDIDATES - 1, device=users.device)
    drawn = rated.unrated(users[:, None].expand_as(counters), random_bits(counters, key_of(CANDIDATES)))
    items = torch.cat((drawn, held_out[:, None]), dim=1)
    positions = (items == held_out[:, None]).int().argmax(dim=1)  # the first place
    ordered, place = items.sort(dim=1, stable=True)
    again = torch.nn.functional.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
    return items.masked_fill(torch.empty_like(again).scatter_(1, place, again), -1), positions
