"""The first convolution of a ResNet in a form that a GPU computes faster."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class SpaceToDepthConv(nn.Conv2d):
    """A 7x7 convolution with stride 2 over three channels, computed as a 4x4 one with stride 1 over twelve.

    Each 2x2 block of pixels becomes the channels of one pixel (space to depth). The weights, padded by a row and a
    column of zeros, are rearranged in the same way. The sums have the same products, but over channels that fill a
    matrix unit. The parameter is that of the plain convolution, so that weights fit. Images of odd height or width, and
    images on a CPU, go through the plain convolution.
    """

    def __init__(self, out_channels: int = 64) -> None:
        super().__init__(3, out_channels, 7, stride=2, padding=3, bias=False)

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")  # as torchvision's ResNets

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map [n, 3, height, width] to [n, out_channels, height / 2, width / 2]."""
        if images.device.type != "cuda" or images.shape[2] % 2 or images.shape[3] % 2:
            return super().forward(images)
        return F.conv2d(space_to_depth(F.pad(images, (3, 3, 3, 3))), space_to_depth(F.pad(self.weight, (0, 1, 0, 1))))


def space_to_depth(planes: torch.Tensor) -> torch.Tensor:
    """Map [n, c, 2 h, 2 w] to [n, 4 c, h, w] channels_last, with channels ordered by row, column and channel."""
    n, channels, height, width = planes.shape
    blocks = planes.view(n, channels, height // 2, 2, width // 2, 2)
    return blocks.permute(0, 2, 4, 3, 5, 1).reshape(n, height // 2, width // 2, 4 * channels).permute(0, 3, 1, 2)
