"""An SSD300 of few channels, a batch for it, and what stands for its evaluator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from trainers.models.ssd.default_boxes import default_boxes
from trainers.models.ssd.module import Ssd
from trainers.workload import Batch

DEFAULTS = default_boxes()
NUM_CLASSES = 3  # colours


class Recorder:
    """Stands for DetectionEvaluator: keeps what it is given."""

    def __init__(self) -> None:
        self.added: list[tuple[np.ndarray, ...]] = []

    def add(self, *columns: np.ndarray) -> None:
        self.added.append(columns)

    def compute(self) -> dict[str, float]:
        return {"box_map": 0.25, "box_map_50": 0.5}


def ssd(recorder: Recorder | None = None, **options: Any) -> Ssd:
    torch.manual_seed(1)
    data: Any = SimpleNamespace(num_classes=NUM_CLASSES, evaluator=lambda iou_types: recorder)
    small = {"epochs": 2, "decay_epochs": [1], "backbone": "resnet18", "width": 0.125}
    return Ssd(data, **{"learning_rate": 1e-3, "weight_decay": 0.0, **small, **options})


def made_batch(num_images: int = 2) -> Batch:
    """Noise, on which each object is a rectangle of its class's colour."""
    rng = np.random.RandomState(3)
    images = rng.randint(100, 130, (num_images, 3, 300, 300)).astype(np.uint8)
    corners = np.array([[20, 30], [160, 140]]) + rng.randint(0, 40, (num_images, 2, 2))
    boxes = np.concatenate((corners, corners + rng.randint(40, 90, (num_images, 2, 2))), axis=2)
    labels = rng.randint(1, NUM_CLASSES + 1, (num_images, 2))
    for image in range(num_images):
        for (x0, y0, x1, y1), label in zip(boxes[image], labels[image], strict=True):
            images[image, label - 1, y0:y1, x0:x1] = 255
    padding = ((0, 0), (0, 3))
    return {
        "images": torch.from_numpy(images).contiguous(memory_format=torch.channels_last),
        "boxes": torch.from_numpy(np.pad(boxes, (*padding, (0, 0))).astype(np.float32)),
        "labels": torch.from_numpy(np.pad(labels, padding)),
        "sizes": torch.full((num_images, 2), 300.0),
        "weights": torch.full((num_images,), 1 / num_images),
        "image_index": torch.arange(num_images),
        "crops": torch.tensor([0.0, 0.0, 640.0, 480.0]).repeat(num_images, 1),
        "num_samples": num_images,
    }
