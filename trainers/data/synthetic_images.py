"""Images for classifiers, generated on the device, to measure it without reading and decoding."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING

import torch

from conf.schema import ConfigError
from trainers.data.crop import SquareView
from trainers.data.loading.synthetic_loader import SyntheticLoader

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

NUM_CLASSES = 1000  # as in ImageNet


def synthetic(size: int = 51_200, num_classes: int = NUM_CLASSES) -> SyntheticImages:
    """Return noise with random labels, `size` images an epoch, without an evaluation."""
    for option, value in (("size", size), ("num_classes", num_classes)):
        if value < 1:
            raise ConfigError(f"dataset.{option}={value}: must be 1 or more")
    return SyntheticImages(size, num_classes)


class SyntheticImages:
    """Implements ClassificationData and Viewable of trainers.data.loading.types; a SquareView sets the size."""

    name = "synthetic"
    view = SquareView()

    def __init__(self, size: int, num_classes: int) -> None:
        self.size, self.num_classes = size, num_classes
        self.class_names = tuple(str(label) for label in range(num_classes))

    @property
    def image_size(self) -> tuple[int, int]:
        return self.view.image_size, self.view.image_size

    def viewed(self, view: SquareView) -> SyntheticImages:
        data = copy(self)
        data.view = view
        return data

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        return [self.batch(batch_size, device, 0)]

    def batch(self, batch_size: int, device: torch.device, seed: int) -> Batch:
        """Return images uint8 [n, 3, height, width], channels_last, labels int64 [n] and equal weights float32 [n]."""
        generator = torch.Generator(device).manual_seed(seed)  # separate from the run's generator
        shape = (batch_size, *self.image_size, 3)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator, device=device)
        return {
            "images": images.permute(0, 3, 1, 2),
            "labels": torch.randint(0, self.num_classes, (batch_size,), generator=generator, device=device),
            "weights": torch.full((batch_size,), 1.0 / batch_size, device=device),
            "num_samples": batch_size,
        }

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> SyntheticLoader:
        return SyntheticLoader(self.size, batch_size, seed, shard, partial(self.batch, batch_size, shard.device))

    def eval_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None
