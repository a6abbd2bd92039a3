"""Random brightness, contrast, saturation and hue of image batches, as one linear map of each image's colours.

It differs from torchvision's ColorJitter in two ways: hue rotates the chroma plane of YIQ, not the circle of HSV, and
colours are clamped once, at the end. The four changes therefore commute, need no random order, and are one 3x3 matrix
and an offset, which the compiler fuses with the reading of the images.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

BRIGHTNESS = 0.125  # The factor is 1 minus to 1 plus this; the next two likewise.
CONTRAST = 0.5
SATURATION = 0.5
HUE = 0.05  # up to this part of a full turn, in both directions
NUM_DRAWS = 4

# Rows: luma Y and the two axes of chroma, I and Q (NTSC 1953); grey has no chroma, so I and Q each sum to zero.
YIQ = np.array([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])


class ColourJitter(nn.Module):
    """Changes colours. Its constants are buffers: made at each use, they would be copied to the device every time."""

    grey: torch.Tensor  # maps RGB to its luma in all three channels
    chroma: torch.Tensor  # maps RGB to RGB without its luma
    quarter_turn: torch.Tensor  # maps RGB to its chroma rotated by 90 degrees

    def __init__(self) -> None:
        super().__init__()
        grey = np.tile(YIQ[0], (3, 1))
        quarter_turn = np.linalg.inv(YIQ) @ np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]]) @ YIQ
        for name, matrix in (("grey", grey), ("chroma", np.eye(3) - grey), ("quarter_turn", quarter_turn)):
            self.register_buffer(name, torch.tensor(matrix, dtype=torch.float32), persistent=False)

    def forward(self, pixels: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change the colours of each image of `pixels`, float32 [n, 3, H, W] from 0 to 1; keep shape and range.

        Args:
            pixels: red, green and blue
            draws: float32 [4, n], uniform from 0 to 1: brightness, contrast, saturation, hue; 0.5 changes nothing
        """
        centred = (draws * 2 - 1)[:, :, None, None]
        brightness, contrast, saturation = (
            1 + draw * limit for draw, limit in zip(centred[:3], (BRIGHTNESS, CONTRAST, SATURATION), strict=True)
        )
        angle = centred[3] * (HUE * 2 * math.pi)
        turned = torch.cos(angle) * self.chroma + torch.sin(angle) * self.quarter_turn
        matrix = brightness * contrast * (self.grey + saturation * turned)  # [n, 3, 3]
        luma = (pixels.mean(dim=(2, 3)) * self.grey[0]).sum(dim=1)[:, None, None, None]  # mean of the whole image
        offset = (brightness * (1 - contrast))[..., None] * luma
        # Avoid a matrix product: autocast would round it to bf16.
        columns = matrix[..., None, None].unbind(dim=2)  # contributions of red, green and blue to all three channels
        red, green, blue = (pixels[:, index : index + 1] * column for index, column in enumerate(columns))
        jittered: torch.Tensor = (red + green + blue + offset).clamp(0, 1)
        return jittered
