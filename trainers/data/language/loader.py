"""Batches of sequences of tokens. A step's sequences do not depend on the number of processes that share them.

A batch of R sequences of T tokens, with R * T = `batch_size`, has:

    inputs       int32 [R, T]
    targets      int64 [R, T], the tokens that follow the inputs; IGNORED in sequences that only pad an evaluation
    num_samples  number of real targets: a sample is a token
    num_tokens   the same number, as a tuple

Step s of W processes has the sequences s * R * W to (s + 1) * R * W of the epoch; rank r has the r-th R of them. Steps
of equal global batch therefore have the same sequences, whether processes or smaller batches of one process share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from tracking.request.batch_checks import check_sequences
from trainers.data.loading.order import EvalOrder
from trainers.data.loading.position import Positioned
from trainers.data.loading.prefetch import prefetch

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

IGNORED = -100  # the target that torch.nn.functional.cross_entropy ignores by default
Rows = Callable[[np.ndarray], torch.Tensor]  # maps places int64 [R] to their tokens, int32 [R, T + 1] on the device


class Part(Protocol):
    """A part of the data, for training or evaluation: sequences, each at its place."""

    @property
    def num_sequences(self) -> int: ...

    def rows(self, seed: int, epoch: int, device: torch.device) -> Rows:
        """Return the sequences of an epoch; seed and epoch may decide their order, or the content of generated ones."""
        ...


def rows_in(batch_size: int, length: int) -> int:
    """Return the number of sequences in a batch of tokens. Raises ConfigError if they do not fill it exactly."""
    check_sequences(batch_size, length)
    return batch_size // length


class TrainLoader(Positioned):
    """One process's share of whole global batches; an epoch leaves out sequences after the last one."""

    def __init__(self, part: Part, length: int, batch_size: int, seed: int, shard: Shard) -> None:
        self.part, self.seed, self.shard = part, seed, shard
        self.num_rows = rows_in(batch_size, length)
        self._epoch = 0

    def __len__(self) -> int:
        return self.part.num_sequences // (self.num_rows * self.shard.world_size)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator, because Lightning calls iter() during setup and nothing may be read before the first next().
        yield from prefetch(self._batches(self._epoch), self.shard.device)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        rows = self.part.rows(self.seed, epoch, self.shard.device)
        for step in range(self.first_step(), len(self)):
            first = (step * self.shard.world_size + self.shard.rank) * self.num_rows
            yield batch(rows(np.arange(first, first + self.num_rows)), self.num_rows)


class EvalLoader:
    """One process's share of all sequences; in every evaluation each counts exactly once over all processes."""

    def __init__(self, part: Part, length: int, batch_size: int, shard: Shard) -> None:
        self.part, self.order = part, EvalOrder(part.num_sequences, rows_in(batch_size, length), shard)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: all evaluations are the same."""

    def __iter__(self) -> Iterator[Batch]:
        yield from prefetch(self._batches(), self.order.shard.device)

    def _batches(self) -> Iterator[Batch]:
        rows = self.part.rows(0, 0, self.order.shard.device)
        for step, places in enumerate(self.order.indices()):
            yield batch(rows(places), self.order.num_real(step))


def batch(tokens: torch.Tensor, num_real: int) -> Batch:
    """Return the batch of tokens int32 [R, T + 1], in which the first `num_real` sequences count."""
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].long()
    if num_real < len(tokens):
        targets[num_real:] = IGNORED
    num_tokens = num_real * inputs.shape[1]
    return {"inputs": inputs, "targets": targets, "num_samples": num_tokens, "num_tokens": (num_tokens,)}
