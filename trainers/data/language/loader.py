"""Batches of sequences of tokens. A step's sequences are the same for any number of processes that share them.

A batch of R sequences of T tokens, R * T = `batch_size`:

    inputs       int32 [R, T]
    targets      int64 [R, T], the tokens behind the inputs; IGNORED in sequences that only fill up an evaluation
    num_samples  the real targets: a sample is a token
    num_tokens   the same, in a tuple of one number

Step s of W processes has the sequences s * R * W to (s + 1) * R * W of the epoch, of which rank r has the r-th R.
So steps of one global batch have the same sequences, however many processes, or smaller batches of one process, share
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.loading.order import EvalOrder
from trainers.data.loading.position import Positioned
from trainers.data.loading.prefetch import prefetch

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

IGNORED = -100  # the target that torch.nn.functional.cross_entropy leaves out by itself
Rows = Callable[[np.ndarray], torch.Tensor]  # from places int64 [R] to their tokens, int32 [R, T + 1] on the device


class Part(Protocol):
    """What is trained or evaluated on: sequences, each with its own place."""

    @property
    def num_sequences(self) -> int: ...

    def rows(self, seed: int, epoch: int, device: torch.device) -> Rows:
        """The sequences of an epoch, whose order, or whose content where they are generated, may follow from both."""
        ...


def rows_in(batch_size: int, length: int) -> int:
    """How many sequences a batch of so many tokens has. Raises ConfigError where they do not make it up."""
    if batch_size % length:
        near = max(length, batch_size - batch_size % length)
        raise ConfigError(
            f"batch_size={batch_size}: counts a device's tokens, and a sequence has {length} (dataset.sequence_length);"
            f" give each device a multiple of {length}, such as {near}"
        )
    return batch_size // length


class TrainLoader(Positioned):
    """One process's share of whole global batches. An epoch leaves out what is left behind the last of these."""

    def __init__(self, part: Part, length: int, batch_size: int, seed: int, shard: Shard) -> None:
        self.part, self.seed, self.shard = part, seed, shard
        self.num_rows = rows_in(batch_size, length)
        self._epoch = 0

    def __len__(self) -> int:
        return self.part.num_sequences // (self.num_rows * self.shard.world_size)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator: Lightning calls iter() while it sets up, and nothing may be read before the first next().
        yield from prefetch(self._batches(self._epoch), self.shard.device)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        rows = self.part.rows(self.seed, epoch, self.shard.device)
        for step in range(self.first_step(), len(self)):
            first = (step * self.shard.world_size + self.shard.rank) * self.num_rows
            yield batch(rows(np.arange(first, first + self.num_rows)), self.num_rows)


class EvalLoader:
    """One process's share of all sequences; over all processes each counts exactly once, in every evaluation."""

    def __init__(self, part: Part, length: int, batch_size: int, shard: Shard) -> None:
        self.part, self.order = part, EvalOrder(part.num_sequences, rows_in(batch_size, length), shard)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """All evaluations are the same."""

    def __iter__(self) -> Iterator[Batch]:
        yield from prefetch(self._batches(), self.order.shard.device)

    def _batches(self) -> Iterator[Batch]:
        rows = self.part.rows(0, 0, self.order.shard.device)
        for step, places in enumerate(self.order.indices()):
            yield batch(rows(places), self.order.num_real(step))


def batch(tokens: torch.Tensor, num_real: int) -> Batch:
    """Of tokens int32 [R, T + 1], of which the first `num_real` sequences count."""
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].long()
    if num_real < len(tokens):
        targets[num_real:] = IGNORED
    num_tokens = num_real * inputs.shape[1]
    return {"inputs": inputs, "targets": targets, "num_samples": num_tokens, "num_tokens": (num_tokens,)}
