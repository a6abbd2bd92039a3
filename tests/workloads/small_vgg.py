"""The VGG with one convolution: for what surrounds a training, whose steps then take no time."""

from __future__ import annotations

from torch import nn

from trainers.models import vgg
from trainers.workload import ClassificationData


class SmallVgg(vgg.Vgg):
    """Has the original's batch normalisation and dense layers, so a checkpoint is of 3 MB."""

    def __init__(
        self,
        data: ClassificationData,
        learning_rate: float,
        weight_decay: float,
        epochs: list[int],
        augment_epochs: int = 0,
    ) -> None:
        super().__init__(data, learning_rate, weight_decay, epochs, augment_epochs)
        convolution = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        size = 8 * (data.image_size[0] // 4) * (data.image_size[1] // 4)
        self.net = nn.Sequential(
            convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(size, 512), nn.ReLU(),
            nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, data.num_classes),
        )  # fmt: skip
