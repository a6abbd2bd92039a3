"""Serves generated batches, for images and for objects alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainers.data.loading.order import TrainOrder
from trainers.data.loading.position import Positioned

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

NUM_BATCHES = 4  # different batches, served in turn
MAX_SEEDS = 2**20  # Each seed has its own batches; NumPy's seeds have up to 32 bits.


class SyntheticLoader(Positioned):
    """Serves a few generated batches in turn, in as many steps as `size` samples need over all processes.

    Steps, weights and real samples are those of `TrainOrder`: the last batch of an epoch is padded with samples of
    weight zero. `generate` makes a full batch from a seed.
    """

    def __init__(self, size: int, batch_size: int, seed: int, shard: Shard, generate: Callable[[int], Batch]) -> None:
        self.order = TrainOrder(size, batch_size, seed, shard)
        self._generate = generate

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: all epochs are the same."""

    def __iter__(self) -> Iterator[Batch]:
        shard, last = self.order.shard, len(self) - 1
        first = (self.order.seed * shard.world_size + shard.rank) % MAX_SEEDS * NUM_BATCHES
        batches = [self._generate(first + number) for number in range(min(NUM_BATCHES, len(self)))]
        weights = {0: self.order.weights(0), last: self.order.weights(last)}
        for step in range(self.first_step(), len(self)):
            yield {
                **batches[step % NUM_BATCHES],
                "weights": weights[last if step == last else 0],
                "num_samples": self.order.num_real(step),
            }
