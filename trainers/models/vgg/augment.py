"""Rotates, shifts and zooms image batches at random on the device, by one grid and one gather."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

DEGREES = 10.0  # largest rotation, in both directions
SHIFT = 0.1  # largest shift as a share of the image's height and width, in both directions
ZOOM = 0.1  # The magnification is from 1 - ZOOM to 1 + ZOOM.


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
