"""Random brightness, contrast, saturation and hue of image batches: one linear map of the colours of each image.

As torchvision's ColorJitter, except that hue turns the chroma plane of YIQ rather than the circle of HSV, and that
colours are limited once, at the end. Then the four commute, and so need no random order, and they are one 3x3 matrix
and an offset, which the compiler fuses with what reads the images.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

BRIGHTNESS = 0.125  # factor of 1 minus to 1 plus this, as also for the next two
CONTRAST = 0.5
SATURATION = 0.5
HUE = 0.05  # up to this part of a full turn, either way
NUM_DRAWS = 4

# Rows: luma Y and the two axes of chroma, I and Q (NTSC 1953); grey has no chroma, so I and Q each sum to zero.
YIQ = np.array([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])


class ColourJitter(nn.Module):
    """Holds its constants as buffers: made where they are used, they would be copied to the device at every step."""

    grey: torch.Tensor  # RGB to its luma in all three
    chroma: torch.Tensor  # RGB to what is left without its luma
    quarter_turn: torch.Tensor  # RGB to its chroma turned by 90 degrees

    def __init__(self) -> None:
        super().__init__()
        grey = np.tile(YIQ[0], (3, 1))
        quarter_turn = np.linalg.inv(YIQ) @ np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]]) @ YIQ
        for name, matrix in (("grey", grey), ("chroma", np.eye(3) - grey), ("quarter_turn", quarter_turn)):
            self.register_buffer(name, torch.tensor(matrix, dtype=torch.float32), persistent=False)

    def forward(self, pixels: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change the colours of each image of `pixels`, float32 [n, 3, H, W] from 0 to 1; same shape and range.

        Args:
            pixels: red, green and blue
            draws: float32 [4, n], uniform from 0 to 1: brightness, contrast, saturation, hue; 0.5 changes nothing
        """
        centred = (draws * 2 - 1)[:, :, None, None]
        brightness, contrast, saturation = (
            1 + own * strength for own, strength in zip(centred[:3], (BRIGHTNESS, CONTRAST, SATURATION), strict=True)
        )
        angle = centred[3] * (HUE * 2 * math.pi)
        turned = torch.cos(angle) * self.chroma + torch.sin(angle) * self.quarter_turn
        matrix = brightness * contrast * (self.grey + saturation * turned)  # [n, 3, 3]
        luma = (pixels.mean(dim=(2, 3)) * self.grey[0]).sum(dim=1)[:, None, None, None]  # the whole image's
        offset = (brightness * (1 - contrast))[..., None] * luma
        # Not a matrix product: autocast would round it to bf16.
        columns = matrix[..., None, None].unbind(dim=2)  # what red, green and blue each add to all three
        red, green, blue = (pixels[:, index : index + 1] * column for index, column in enumerate(columns))
        jittered: torch.Tensor = (red + green + blue + offset).clamp(0, 1)
        return jittered
