"""Which samples a process takes at each step, and what they weigh: every sample counts once, and shapes never change.

A sample that only fills up a batch has weight zero.
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
    """One process's share of the shuffled training samples, each of which counts exactly once an epoch.

    One permutation an epoch, the same on every process, is cut into global batches of `batch_size * world_size`, so
    the global batches do not depend on the number of processes. The last one is filled up from the permutation's
    start. A real sample weighs world_size / (real samples of the global batch), filler 0: DDP averages gradients over
    the processes, which makes a weighted sum of losses on each the exact mean over the global batch's real samples.
    """

    num_samples: int
    batch_size: int
    seed: int
    shard: Shard

    def __post_init__(self) -> None:
        assert self.batch_size > 0
        assert 0 <= self.shard.rank < self.shard.world_size

    def __len__(self) -> int:
        """Steps an epoch."""
        return -(-self.num_samples // self._global_batch())

    def indices(self, epoch: int) -> np.ndarray:
        """This process's samples of an epoch, int64 [steps, batch_size]."""
        # RandomState's streams are frozen (NEP 19), so that the order is the same on every stack; and unlike PyTorch
        # it wakes no thread pool, which takes tens of milliseconds on a large machine.
        order = np.random.RandomState([self.seed, epoch]).permutation(self.num_samples)
        # Wraps around as often as it must. Processes take turns in a global batch, so that filler spreads evenly.
        order = np.resize(order, (len(self), self.batch_size, self.shard.world_size))
        return np.ascontiguousarray(order[:, :, self.shard.rank], dtype=np.int64)

    def num_real(self, step: int) -> int:
        """Real samples of this process at a step; they come before the filler."""
        return len(range(self.shard.rank, self._num_global(step), self.shard.world_size))

    def weights(self, step: int) -> torch.Tensor:
        """float32 [batch_size] on the device; all steps but the last have the same."""
        real = torch.arange(self.batch_size, device=self.shard.device) < self.num_real(step)
        return real * (self.shard.world_size / self._num_global(step))

    def _global_batch(self) -> int:
        return self.batch_size * self.shard.world_size

    def _num_global(self, step: int) -> int:
        return min(self._global_batch(), self.num_samples - step * self._global_batch())


@dataclass(frozen=True)
class EvalOrder:
    """One process's contiguous share of a fixed part of the data; over all processes each sample counts exactly once.

    Every process has the same number of steps, because collectives run in step, even where it has no real sample left.
    A real sample weighs 1, filler 0.
    """

    num_samples: int
    batch_size: int
    shard: Shard

    def __post_init__(self) -> None:
        assert self.batch_size > 0 < self.num_samples
        assert 0 <= self.shard.rank < self.shard.world_size

    @property
    def first(self) -> int:
        """Where this process's share begins."""
        return self.shard.rank * self._share()

    def __len__(self) -> int:
        """Steps of an evaluation."""
        return -(-self._share() // self.batch_size)

    def indices(self) -> np.ndarray:
        """This process's samples, int64 [steps, batch_size]."""
        order = np.arange(self.first, self.first + len(self) * self.batch_size, dtype=np.int64)
        return order.clip(max=self.num_samples - 1).reshape(len(self), self.batch_size)

    def num_real(self, step: int) -> int:
        """Real samples of this process at a step; they come before the filler."""
        own = min(self._share(), self.num_samples - self.first)
        return max(0, min(own - step * self.batch_size, self.batch_size))

    def weights(self, step: int) -> torch.Tensor:
        """float32 [batch_size] on the device."""
        return (torch.arange(self.batch_size, device=self.shard.device) < self.num_real(step)).float()

    def _share(self) -> int:
        return -(-self.num_samples // self.shard.world_size)
