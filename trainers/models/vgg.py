"""A VGG-like CNN with batch normalisation, as in the Fashion-MNIST study of EC2's P2 and P3 instances.

Layers: 3x3 convolutions 32-32-64-64, pool, 128-128-256-256-256, pool, then dense 512-512-classes. Batch normalisation
and ReLU follow each convolution (K. Simonyan and A. Zisserman 2014, arXiv:1409.1556; S. Ioffe and C. Szegedy 2015,
arXiv:1502.03167).
"""

from __future__ import annotations

import math
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from conf.schema import ConfigError
from trainers.data.digits import digits
from trainers.data.fashion_mnist import fashion_mnist
from trainers.models.schedule import Schedule, is_count
from trainers.ops.compiling import compiled
from trainers.ops.confusion.matrix import ConfusionCounter, confusion_cells, plot, write_csv
from trainers.workload import Batch, ClassificationData, TrialModule, Workload

BLOCKS = ((32, 32, 64, 64), (128, 128, 256, 256, 256))  # channels of the convolutions; each block ends in 2x2 pooling
DENSE = (512, 512)
DEGREES = 10.0  # largest rotation, in both directions
SHIFT = 0.1  # largest shift as a share of the image's height and width, in both directions
ZOOM = 0.1  # The magnification is from 1 - ZOOM to 1 + ZOOM.


def build_network(image_size: tuple[int, int], num_classes: int) -> nn.Sequential:
    """Return a network from float [n, 1, height, width] to logits [n, num_classes]; both sides are divisible by 4.

    Convolutions have no bias, because batch normalisation would remove it. Dense layers have no batch normalisation:
    the study names it for convolutions only, and without it a batch of one can be trained.
    """
    layers: list[nn.Module] = []
    channels = 1
    for block in BLOCKS:
        for width in block:
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    features = channels * (image_size[0] // 4) * (image_size[1] // 4)
    for width in DENSE:
        layers += [nn.Linear(features, width), nn.ReLU()]
        features = width
    layers.append(nn.Linear(features, num_classes))
    return nn.Sequential(*layers)


class Predictor(nn.Module):
    """Maps uint8 [n, 1, height, width] to logits [n, num_classes], with the weights of `net`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(images.float() * (1 / 255))
        return logits.float()


def forward_loss(
    net: nn.Module, images: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits [n, classes] and the weighted sum of the cross entropies, a scalar, of images uint8 [n, 1, h, w].

    Scaling the images to 0 to 1 here lets the compiler fuse it. Background stays zero, like the padding; the first
    batch normalisation does the rest.
    """
    logits = net(images.float() * (1 / 255))
    losses = F.cross_entropy(logits.float(), labels, reduction="none")
    return logits, (losses * weights).sum()


def evaluate(
    net: nn.Module, images: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each sample's cell of the confusion matrix, int64 [n], and the weighted sum of losses."""
    logits, loss = forward_loss(net, images, labels, weights)
    return confusion_cells(logits, labels, weights), loss


class Vgg(TrialModule):
    """Trains by Adam: `epochs[i]` epochs at learning_rate / 10**i, then `augment_epochs` augmented at the last rate.

    Raises ConfigError for an invalid schedule or image size.
    """

    def __init__(
        self,
        data: ClassificationData,
        learning_rate: float,
        weight_decay: float,
        epochs: list[int],
        augment_epochs: int = 0,
    ) -> None:
        super().__init__()
        check_schedule(epochs, augment_epochs)
        if any(size % 4 or size <= 0 for size in data.image_size):
            raise ConfigError(
                f"model=vgg dataset={data.name}: has images of {data.image_size[0]}x{data.image_size[1]} pixels, but"
                " two poolings need a height and width divisible by 4. Next: give another dataset"
            )
        self.weight_decay = weight_decay
        self.num_plain_epochs, self.max_epochs = sum(epochs), sum(epochs) + augment_epochs
        self.schedule = Schedule(learning_rate, self.max_epochs, list(accumulate(epochs))[:-1])
        self.class_names = data.class_names
        # cuDNN's tensor-core kernels need this layout, and a CPU is faster with it. DDP lays out its buckets later.
        self.net = build_network(data.image_size, data.num_classes).to(memory_format=torch.channels_last)
        self._forward_loss, self._evaluate = forward_loss, evaluate
        self._counter = ConfusionCounter(data.num_classes)
        self._matrix: np.ndarray | None = None  # of the last evaluation

    def compile_hot_path(self) -> None:
        """Compile network and loss, for training and evaluation; shapes never change, so each compiles once."""
        self._forward_loss = compiled(forward_loss, self.device)
        self._evaluate = compiled(evaluate, self.device)

    def augments_at(self, epoch: int) -> bool:
        return epoch >= self.num_plain_epochs

    def configure_optimizers(self) -> torch.optim.Optimizer:
        rate = self.schedule.learning_rate
        return torch.optim.Adam(self.parameters(), lr=rate, weight_decay=self.weight_decay, fused=True)

    def on_train_epoch_start(self) -> None:
        self.schedule.apply(self.trainer, 0)  # All steps of an epoch have one rate.

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        images = augment(batch["images"]) if self.augments_at(self.current_epoch) else batch["images"]
        return self._forward_loss(self.net, images, batch["labels"], batch["weights"])[1]

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        # Training batches weigh their samples; in an evaluation each counts as one.
        weights = (batch["weights"] > 0).float()
        self._counter.add(*self._evaluate(self.net, batch["images"], batch["labels"], weights))

    def metrics(self) -> dict[str, float]:
        self._matrix, loss = self._counter.reduce()
        total = int(self._matrix.sum())
        return {"accuracy": int(np.trace(self._matrix)) / total, "loss": loss / total}

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        return Predictor(self.net), batch["images"]

    def write_report(self, run_dir: Path) -> None:
        """Write the confusion matrix of the last evaluation, if there was one."""
        if self._matrix is not None:
            write_csv(self._matrix, self.class_names, run_dir / "confusion_matrix.csv")
            plot(self._matrix, self.class_names, run_dir / "confusion_matrix.png")


def check_schedule(epochs: Any, augment_epochs: Any) -> None:
    """Raise ConfigError unless `epochs` is a list of counts, `augment_epochs` a count, and their sum at least 1."""
    if not isinstance(epochs, list | tuple) or not epochs or not all(map(is_count, epochs)):
        raise ConfigError(f"model.hparams.epochs={epochs}: must be a list of whole numbers of epochs, such as [10, 10]")
    if not is_count(augment_epochs):
        raise ConfigError(f"model.hparams.augment_epochs={augment_epochs}: must be a whole number of epochs, 0 or more")
    if sum(epochs) + augment_epochs == 0:
        raise ConfigError(f"model.hparams.epochs={list(epochs)}: trains for 0 epochs. Next: give at least one")


WORKLOAD = Workload(module=Vgg, data={"digits": digits, "fashion_mnist": fashion_mnist}, unit="images")


def augment(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 images [n, c, height, width], each rotated, shifted and zoomed at random, in the same shape.

    The four parameters are uniform and drawn for each image, from the device's global generator, which the trainer
    has seeded.
    """
    angle, shift_y, shift_x, zoom = torch.rand(4, len(images), device=images.device) * 2 - 1
    shift = torch.stack((shift_y, shift_x), dim=1)
    return warp(images, angle * math.radians(DEGREES), shift * SHIFT, 1 + zoom * ZOOM)


def warp(images: torch.Tensor, angle: torch.Tensor, shift: torch.Tensor, zoom: torch.Tensor) -> torch.Tensor:
    """Rotate, zoom and then shift images, with bilinear interpolation and zeros outside.

    Args:
        images: uint8 [n, c, height, width]
        angle: [n], radians, counter-clockwise on the screen
        shift: [n, 2], down and right, as shares of height and width
        zoom: [n], magnification about the centre
    """
    height, width = images.shape[-2:]
    cos, sin = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    # affine_grid needs the inverse map: from a point in the result, x right and y down in -1..1, to one in the source.
    rotation = torch.stack((cos, -sin * height / width, sin * width / height, cos), dim=1).view(-1, 2, 2)
    offset = rotation @ (-2 * shift.flip(1)).unsqueeze(2)
    with torch.autocast(images.device.type, enabled=False):  # bf16 coordinates would be off by part of a pixel.
        grid = F.affine_grid(torch.cat((rotation, offset), dim=2), list(images.shape), align_corners=False)
        warped = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return warped.round().to(torch.uint8)
