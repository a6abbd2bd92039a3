"""Random rotation, shift and zoom of image batches, on the device: one grid, one gather, nothing of the host."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

DEGREES = 10.0  # rotation by up to this, either way
SHIFT = 0.1  # shift by up to this part of the image's height and width, either way
ZOOM = 0.1  # magnify by 1 - ZOOM to 1 + ZOOM


def augment(images: torch.Tensor) -> torch.Tensor:
    """Every image of uint8 [n, c, height, width] rotated, shifted and zoomed at random; same shape and type.

    The four parameters are uniform and drawn for each image from the global generator of the images' device, which the
    trainer has seeded.
    """
    angle, shift_y, shift_x, zoom = torch.rand(4, len(images), device=images.device) * 2 - 1
    shift = torch.stack((shift_y, shift_x), dim=1)
    return warp(images, angle * math.radians(DEGREES), shift * SHIFT, 1 + zoom * ZOOM)


def warp(images: torch.Tensor, angle: torch.Tensor, shift: torch.Tensor, zoom: torch.Tensor) -> torch.Tensor:
    """Rotate, zoom and then shift images, filling with zero; bilinear.

    Args:
        images: uint8 [n, c, height, width]
        angle: [n], radians, counter-clockwise on the screen
        shift: [n, 2], down and right, as parts of height and width
        zoom: [n], magnification about the centre
    """
    height, width = images.shape[-2:]
    cos, sin = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    # affine_grid maps a place in the result, x right and y down in -1..1, to a place in the source: the inverse map.
    rotation = torch.stack((cos, -sin * height / width, sin * width / height, cos), dim=1).view(-1, 2, 2)
    offset = rotation @ (-2 * shift.flip(1)).unsqueeze(2)
    with torch.autocast(images.device.type, enabled=False):  # bf16 coordinates would be off by part of a pixel
        grid = F.affine_grid(torch.cat((rotation, offset), dim=2), list(images.shape), align_corners=False)
        warped = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return warped.round().to(torch.uint8)
