"""Batches for detectors, generated on the device, for the warm-up and to measure the device without the input."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.detection.batch import pad_edges
from trainers.data.detection.view import ShortEdge, View
from trainers.data.loading.prefetch import all_to_device
from trainers.data.loading.synthetic_loader import SyntheticLoader

if TYPE_CHECKING:
    from trainers.data.coco import IouType
    from trainers.data.loading.types import Batch, Shard

OBJECTS = 7  # per image, about as many as in COCO
CLASSES = 80
ROOM = 96  # objects per image; the most in a training image of COCO are 93
CORNERS = 24  # per outline


def generated_batch(
    batch_size: int,
    canvas: tuple[int, int],
    num_objects: int,
    num_classes: int,
    outlines: bool,
    device: torch.device,
    seed: int = 0,
) -> Batch:
    """Return a batch as described in trainers.data.detection.batch: noise, with up to 7 ellipses an image as objects.

    It uses a separate generator, so that warming up does not change the run's random numbers.
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
        arrays |= pad_edges(edges, np.repeat(owner.ravel(), CORNERS), batch_size, batch_size * num_objects)
    noise = torch.Generator(device).manual_seed(seed)
    shape = (batch_size, height, width, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=noise, device=device)
    return {**all_to_device(arrays, device), "images": images.permute(0, 3, 1, 2), "num_samples": batch_size}


def ellipses(boxes: np.ndarray) -> np.ndarray:
    """Return outlines of ellipses that fill boxes [K, 4], as directed edges: float32 [K * CORNERS, 4]."""
    angle = np.arange(CORNERS + 1) * (2 * np.pi / CORNERS)
    centre, radius = (boxes[:, None, :2] + boxes[:, None, 2:]) / 2, (boxes[:, None, 2:] - boxes[:, None, :2]) / 2
    points = centre + radius * np.stack((np.cos(angle), np.sin(angle)), axis=1)
    return np.concatenate((points[:, :-1], points[:, 1:]), axis=2).reshape(-1, 4).astype(np.float32)


class SyntheticDetection:
    """Random images on the device, `size` an epoch, without an evaluation.

    A batch has room for `num_objects` in each image and fills up to 7. Images fill `canvas`; None means the view's
    first one. Implements trainers.data.loading.types.DetectionData and Viewable.
    """

    name = "synthetic"
    view: View = ShortEdge()

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

    def viewed(self, view: View) -> SyntheticDetection:
        data = copy(self)
        data.view = view
        return data

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        return [self.batch(batch_size, device, 0)]

    def batch(self, batch_size: int, device: torch.device, seed: int) -> Batch:
        canvas, outlines = self.canvas or self.view.canvases[0], self.view.outlines
        return generated_batch(batch_size, canvas, self.num_objects, self.num_classes, outlines, device, seed)

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> SyntheticLoader:
        return SyntheticLoader(self.size, batch_size, seed, shard, partial(self.batch, batch_size, shard.device))

    def eval_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def evaluator(self, iou_types: tuple[IouType, ...]) -> None:
        return None
