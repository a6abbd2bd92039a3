"""Generated batches for detectors, on the device: to warm up on, and to measure the device without the input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.detection.batch import pad_edges, to_device
from trainers.data.detection.view import View

if TYPE_CHECKING:
    from trainers.data.types import Batch, Shard

OBJECTS = 7  # an image, about as many as COCO's have
CLASSES = 80
ROOM = 96  # COCO's fullest training image has 93
CORNERS = 24  # of an outline
NUM_BATCHES = 4  # different ones, served in turns


def generated_batch(
    batch_size: int,
    canvas: tuple[int, int],
    num_objects: int,
    num_classes: int,
    outlines: bool,
    device: torch.device,
    seed: int = 0,
) -> Batch:
    """A batch as trainers.data.detection.batch describes it: noise, with up to 7 objects, ellipses, an image.

    Has a generator of its own: warming up must not move the run's random numbers.
    """
    rng = np.random.RandomState(seed)
    height, width = canvas
    num = min(OBJECTS, num_objects)
    size = np.exp(rng.uniform(np.log(0.06), np.log(0.6), (batch_size, num, 2))) * (width, height)
    corner = rng.random_sample((batch_size, num, 2)) * ((width, height) - size)
    boxes = np.zeros((batch_size, num_objects, 4), np.float32)
    boxes[:, :num] = np.concatenate((corner, corner + size), axis=2)
    labels = np.zeros((batch_size, num_objects), np.int64)
    labels[:, :num] = rng.randint(1, num_classes + 1, (batch_size, num))
    arrays: dict[str, np.ndarray] = {
        "boxes": boxes,
        "labels": labels,
        "sizes": np.tile(np.array(canvas, np.float32), (batch_size, 1)),
        "weights": np.full(batch_size, 1 / batch_size, np.float32),
        "image_index": np.full(batch_size, -1),
        "crops": np.tile(np.array((0, 0, width, height), np.float32), (batch_size, 1)),
    }
    if outlines:
        edges = ellipses(boxes[:, :num].reshape(-1, 4))
        owner = np.arange(batch_size)[:, None] * num_objects + np.arange(num)
        arrays |= pad_edges(edges, np.repeat(owner.ravel(), CORNERS), batch_size * num_objects)
    noise = torch.Generator(device).manual_seed(seed)
    shape = (batch_size, height, width, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=noise, device=device)
    return {**to_device(arrays, device), "images": images.permute(0, 3, 1, 2), "num_samples": batch_size}


def ellipses(boxes: np.ndarray) -> np.ndarray:
    """Outlines that fill boxes [K, 4]: float32 [K * CORNERS, 4], directed edges."""
    angle = np.arange(CORNERS + 1) * (2 * np.pi / CORNERS)
    centre, radius = (boxes[:, None, :2] + boxes[:, None, 2:]) / 2, (boxes[:, None, 2:] - boxes[:, None, :2]) / 2
    points = centre + radius * np.stack((np.cos(angle), np.sin(angle)), axis=1)
    return np.concatenate((points[:, :-1], points[:, 1:]), axis=2).reshape(-1, 4).astype(np.float32)


class SyntheticDetection:
    """Random images on the device, `size` an epoch; no accuracy, and so no evaluation. Implements workload.Data.

    Batches have room for `num_objects` an image, of which up to 7 are there.
    """

    name = "synthetic"

    def __init__(
        self,
        size: int = 4096,
        num_classes: int = CLASSES,
        num_objects: int = ROOM,
        canvas: tuple[int, int] | None = None,
    ) -> None:
        for option, value in (("size", size), ("num_classes", num_classes), ("num_objects", num_objects)):
            if value < 1:
                raise ConfigError(f"dataset.{option}={value}: must be 1 or more")
        self.size, self.canvas = size, canvas
        self.num_classes, self.num_objects = num_classes, num_objects
        self.class_names = tuple(str(label + 1) for label in range(num_classes))
        self.view: View | None = None
        self.outlines = False

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        return [self.batch(batch_size, device, 0)]

    def batch(self, batch_size: int, device: torch.device, seed: int) -> Batch:
        assert self.view is not None, "the module sets data.view in its constructor"
        canvas = self.canvas or self.view.canvases[0]
        return generated_batch(batch_size, canvas, self.num_objects, self.num_classes, self.outlines, device, seed)

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> SyntheticLoader:
        return SyntheticLoader(self, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None


class SyntheticLoader:
    """Serves a few generated batches in turns, as often as `size` images over all processes take."""

    def __init__(self, data: SyntheticDetection, batch_size: int, seed: int, shard: Shard) -> None:
        self.data, self.batch_size, self.seed, self.shard = data, batch_size, seed, shard

    def __len__(self) -> int:
        return max(1, self.data.size // (self.batch_size * self.shard.world_size))

    def set_epoch(self, epoch: int) -> None:
        """Every epoch is the same."""

    def __iter__(self) -> Iterator[Batch]:
        first = (self.seed + self.shard.rank) % 2**20 * NUM_BATCHES
        batches = [self.data.batch(self.batch_size, self.shard.device, first + one) for one in range(NUM_BATCHES)]
        for step in range(len(self)):
            yield batches[step % NUM_BATCHES]
