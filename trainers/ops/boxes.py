"""Boxes as x0 y0 x1 y1 in pixels, float32: overlaps, and the encoding of a box relative to an anchor.

The encoding is that of R. Girshick 2015 (arXiv:1504.08083): shifts of the centre in units of the anchor's width and
height, and logarithms of the scales, each multiplied by a weight.
"""

from __future__ import annotations

import math

import torch

MAX_LOG_SCALE = math.log(1000 / 16)  # torchvision's and Detectron's bound, against overflow of exp


def pairwise_iou(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the intersection over union of [..., A, 4] with [..., G, 4]: [..., A, G]; 0 for two empty boxes."""
    x0, y0, x1, y1 = first.unsqueeze(-2).unbind(-1)
    u0, v0, u1, v1 = second.unsqueeze(-3).unbind(-1)
    width = (torch.minimum(x1, u1) - torch.maximum(x0, u0)).clamp(min=0)
    height = (torch.minimum(y1, v1) - torch.maximum(y0, v0)).clamp(min=0)
    intersection = width * height
    union = (x1 - x0) * (y1 - y0) + (u1 - u0) * (v1 - v0) - intersection
    return intersection / union.clamp(min=1e-9)


def encode(boxes: torch.Tensor, anchors: torch.Tensor, weights: tuple[float, float]) -> torch.Tensor:
    """Encode boxes [..., 4] relative to anchors [..., 4]. A size of zero, as in padding, counts as 1e-6 pixels."""
    centre, size = _centre_and_size(boxes)
    anchor_centre, anchor_size = _centre_and_size(anchors)
    shift = (centre - anchor_centre) / anchor_size * weights[0]
    scale = torch.log(size / anchor_size) * weights[1]
    return torch.cat((shift, scale), dim=-1)


def decode(deltas: torch.Tensor, anchors: torch.Tensor, weights: tuple[float, float]) -> torch.Tensor:
    """Return boxes [..., 4] from deltas [..., 4] and anchors [..., 4]: the inverse of `encode`."""
    deltas = deltas.float()
    anchor_centre, anchor_size = _centre_and_size(anchors)
    centre = deltas[..., :2] / weights[0] * anchor_size + anchor_centre
    half = torch.exp((deltas[..., 2:] / weights[1]).clamp(max=MAX_LOG_SCALE)) * anchor_size * 0.5
    return torch.cat((centre - half, centre + half), dim=-1)


def clip(boxes: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Clip boxes [n, K, 4] to images of `sizes` [n, 2], height and width."""
    height, width = sizes[:, None, :1], sizes[:, None, 1:]
    limit = torch.cat((width, height, width, height), dim=-1)
    return torch.minimum(boxes.clamp(min=0), limit)


def to_image(boxes: torch.Tensor, crops: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Convert boxes [n, K, 4] from canvas pixels to pixels of the unflipped images.

    Args:
        boxes: x0 y0 x1 y1
        crops: [n, 4], x0 y0 x1 y1 of the crops in pixels of the images
        sizes: [n, 2], height and width of the crops on the canvas
    """
    scale = (crops[:, 2:] - crops[:, :2]) / sizes.flip(1)
    return boxes * scale.repeat(1, 2)[:, None] + crops[:, :2].repeat(1, 2)[:, None]


def _centre_and_size(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    size = (boxes[..., 2:] - boxes[..., :2]).clamp(min=1e-6)
    return (boxes[..., :2] + boxes[..., 2:]) * 0.5, size
