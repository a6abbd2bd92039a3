"""Orders of samples: which ones a process takes at each step, and their weights.

Every sample counts once, and shapes never change: a sample that only pads a batch has weight zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from trainers.data.loading.types import Shard


@dataclass(frozen=True)
class TrainOrder:
    """One process's share of the shuffled training samples; each sample counts exactly once an epoch.

    Each epoch has one permutation, the same on all processes. It is cut into global batches of `batch_size *
    world_size`, which therefore do not depend on the number of processes. The last one is padded from the permutation's
    start. A real sample weighs world_size / (real samples of the global batch), padding 0. DDP averages gradients over
    processes, so weighted sums of losses give the exact mean over the real samples.
    """

    num_samples: int
    batch_size: int
    seed: int
    shard: Shard

    def __post_init__(self) -> None:
        assert self.batch_size > 0
        assert 0 <= self.shard.rank < self.shard.world_size

    def __len__(self) -> int:
        """Return the number of steps in an epoch."""
        return -(-self.num_samples // self._global_batch())

    def indices(self, epoch: int) -> np.ndarray:
        """Return this process's samples of an epoch, int64 [steps, batch_size]."""
        # RandomState's streams are frozen (NEP 19), so the order is the same on every stack. Unlike PyTorch, it wakes
        # no thread pool, which takes tens of milliseconds on a large machine.
        order = np.random.RandomState([self.seed, epoch]).permutation(self.num_samples)
        # resize wraps around. Processes take turns in a global batch, so that padding spreads evenly.
        order = np.resize(order, (len(self), self.batch_size, self.shard.world_size))
        return np.ascontiguousarray(order[:, :, self.shard.rank], dtype=np.int64)

    def num_real(self, step: int) -> int:
        """Return the number of this process's real samples at a step; they precede the padding."""
        return len(range(self.shard.rank, self._num_global(step), self.shard.world_size))

    def weights(self, step: int) -> torch.Tensor:
        """Return the weights, float32 [batch_size] on the device; all steps except the last have the same."""
        real = torch.arange(self.batch_size, device=self.shard.device) < self.num_real(step)
        return real * (self.shard.world_size / self._num_global(step))

    def _global_batch(self) -> int:
        return self.batch_size * self.shard.world_size

    def _num_global(self, step: int) -> int:
        return min(self._global_batch(), self.num_samples - step * self._global_batch())


@dataclass(frozen=True)
class EvalOrder:
    """One process's contiguous share of a fixed part of the data; over all processes each sample counts exactly once.

    All processes have the same number of steps, even without real samples left, because collective calls need all of
    them. A real sample weighs 1, padding 0.
    """

    num_samples: int
    batch_size: int
    shard: Shard

    def __post_init__(self) -> None:
        assert self.batch_size > 0 < self.num_samples
        assert 0 <= self.shard.rank < self.shard.world_size

    @property
    def first(self) -> int:
        """Return the first sample of this process's share."""
        return self.shard.rank * self._share()

    def __len__(self) -> int:
        """Return the number of steps in an evaluation."""
        return -(-self._share() // self.batch_size)

    def indices(self) -> np.ndarray:
        """Return this process's samples, int64 [steps, batch_size]."""
        order = np.arange(self.first, self.first + len(self) * self.batch_size, dtype=np.int64)
        return order.clip(max=self.num_samples - 1).reshape(len(self), self.batch_size)

    def num_real(self, step: int) -> int:
        """Return the number of this process's real samples at a step; they precede the padding."""
        num_real = min(self._share(), self.num_samples - self.first)
        return max(0, min(num_real - step * self.batch_size, self.batch_size))

    def weights(self, step: int) -> torch.Tensor:
        """Return the weights, float32 [batch_size] on the device."""
        return (torch.arange(self.batch_size, device=self.shard.device) < self.num_real(step)).float()

    def _share(self) -> int:
        return -(-self.num_samples // self.shard.world_size)
