"""Generated images for classifiers, on the device: to measure the device without reading and decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from conf.schema import ConfigError
from trainers.data.order import TrainOrder

if TYPE_CHECKING:
    from trainers.data.types import Batch, Shard

NUM_CLASSES = 1000  # as many as ImageNet has
NUM_BATCHES = 4  # different ones, served in turns


def synthetic(size: int = 51_200, num_classes: int = NUM_CLASSES) -> SyntheticImages:
    """Noise and random labels, `size` images an epoch. There is no accuracy, and so no evaluation."""
    for option, value in (("size", size), ("num_classes", num_classes)):
        if value < 1:
            raise ConfigError(f"dataset.{option}={value}: must be 1 or more")
    return SyntheticImages(size, num_classes)


class SyntheticImages:
    """Implements trainers.workload.Data. The module sets `image_size` before loaders are made."""

    name = "synthetic"

    def __init__(self, size: int, num_classes: int) -> None:
        self.size, self.num_classes = size, num_classes
        self.class_names = tuple(str(label) for label in range(num_classes))
        self.image_size = 224
        self.eval_resize, self.min_crop_area = 256, 1.0  # not used: nothing is evaluated, nothing cut

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        weights = torch.full((batch_size,), 1.0 / batch_size, device=device)
        return [{**self.noise(batch_size, device, 0), "weights": weights, "num_samples": batch_size}]

    def noise(self, batch_size: int, device: torch.device, seed: int) -> Batch:
        """Images uint8 [n, 3, image_size, image_size], channels_last, and labels int64 [n]."""
        generator = torch.Generator(device).manual_seed(seed)  # its own: the run's random numbers must not move
        shape = (batch_size, self.image_size, self.image_size, 3)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator, device=device)
        labels = torch.randint(0, self.num_classes, (batch_size,), generator=generator, device=device)
        return {"images": images.permute(0, 3, 1, 2), "labels": labels}

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> SyntheticLoader:
        return SyntheticLoader(self, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None


class SyntheticLoader:
    """A few batches in turns, as often as `size` images over all processes take."""

    def __init__(self, data: SyntheticImages, batch_size: int, seed: int, shard: Shard) -> None:
        self.data, self.shard = data, shard
        self.order = TrainOrder(data.size, batch_size, seed, shard)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """All epochs are the same."""

    def __iter__(self) -> Iterator[Batch]:
        batches: list[Batch] = []
        first = (self.order.seed * self.shard.world_size + self.shard.rank) * NUM_BATCHES
        last = len(self) - 1
        weights = {0: self.order.weights(0), last: self.order.weights(last)}
        for step in range(len(self)):
            if step < NUM_BATCHES:
                batches.append(self.data.noise(self.order.batch_size, self.shard.device, first + step))
            yield {
                **batches[step % NUM_BATCHES],
                "weights": weights[last if step == last else 0],
                "num_samples": self.order.num_real(step),
            }
