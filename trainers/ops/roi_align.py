"""RoIAlign over the levels of a feature pyramid (K. He et al. 2017, arXiv:1703.06870), in fixed shapes.

torchvision handles one level a call, in float32 and channels first, and the host has to wait for the regions of each
level. Here one kernel handles all levels, reads and writes channels_last in the features' dtype, and skips regions that
only pad the shape. The samples are those of torchvision with aligned=False.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torchvision

SAMPLES = 2  # per bin and axis
CANONICAL_LEVEL, CANONICAL_SIZE = 4, 224  # a region of 224 x 224 pixels belongs to level 4 (arXiv:1612.03144, eq. 1)


def pyramid_level(rois: torch.Tensor, lowest: int, highest: int) -> torch.Tensor:
    """Return the level from which each of rois [R, 4] is read: int64 [R], counted from `lowest`."""
    area = (rois[:, 2] - rois[:, 0]) * (rois[:, 3] - rois[:, 1])
    level = CANONICAL_LEVEL + torch.log2(area.clamp(min=1e-6).sqrt() / CANONICAL_SIZE) + 1e-6
    return (level.floor().clamp(lowest, highest) - lowest).long()


def roi_align(
    features: Sequence[torch.Tensor],
    rois: torch.Tensor,
    image: torch.Tensor,
    valid: torch.Tensor,
    size: int,
    first_stride: int,
) -> torch.Tensor:
    """Return the features of each region, [R, C, size, size] in their dtype, channels_last; zero if not valid.

    Args:
        features: one map for each level, [n, C, height, width], each with half the resolution of the one before
        rois: float32 [R, 4], x0 y0 x1 y1 in image pixels
        image: int64 [R], the region's image among n
        valid: bool [R]
        size: bins per side
        first_stride: image pixels per cell of the first level
    """
    lowest = int(math.log2(first_stride))
    level = pyramid_level(rois, lowest, lowest + len(features) - 1)
    if features[0].is_cuda:
        from trainers.ops import roi_align_triton

        pooled: torch.Tensor = roi_align_triton.RoiAlign.apply(
            rois.detach(), image, valid, level, size, first_stride, SAMPLES, *features
        )
        return pooled
    if torch.compiler.is_compiling():  # Only torch.export traces this function.
        return as_a_graph(features, rois, image, valid, level, size, first_stride)
    return _on_cpu(features, rois, image, valid, level, size, first_stride)


def as_a_graph(
    features: Sequence[torch.Tensor], rois: torch.Tensor, image: torch.Tensor, valid: torch.Tensor,
    level: torch.Tensor, size: int, first_stride: int,
) -> torch.Tensor:  # fmt: skip
    """Compute `roi_align` in PyTorch's operators, for an exported program that runs without torchvision.

    The pixels of all levels are concatenated, and each sample is interpolated bilinearly between four of them. As in
    torchvision, a sample more than a pixel outside of the map is zero.
    """
    shapes = torch.tensor([feature.shape[2:] for feature in features])
    starts = torch.tensor([0, *itertools.accumulate(feature.shape[2] * feature.shape[3] for feature in features)])
    pixels = torch.cat([feature.flatten(2) for feature in features], dim=2).transpose(1, 2)  # [n, all pixels, C]
    scale = 1.0 / (first_stride * 2**level)
    corner = rois * scale[:, None]
    extent = (corner[:, 2:] - corner[:, :2]).clamp(min=1)
    steps = (torch.arange(size * SAMPLES) + 0.5) / (size * SAMPLES)
    near, far, share = [], [], []  # first x, then y, each [R, size * SAMPLES]
    inside = torch.ones((), dtype=torch.bool)
    for axis in (0, 1):
        place = corner[:, axis, None] + extent[:, axis, None] * steps
        length = shapes[level, 1 - axis, None]
        within = (place >= -1) & (place <= length)
        inside = inside & (within[:, None, :] if axis == 0 else within[:, :, None])
        place = torch.minimum(place.clamp(min=0), length - 1)
        near.append(place.floor().long())
        far.append(torch.minimum(near[axis] + 1, length - 1))
        share.append(place - near[axis])
    width, start = shapes[level, 1, None, None], starts[level, None, None]
    total = torch.zeros((), dtype=pixels.dtype)
    for y, weight_y in ((near[1], 1 - share[1]), (far[1], share[1])):
        for x, weight_x in ((near[0], 1 - share[0]), (far[0], share[0])):
            index = start + y[:, :, None] * width + x[:, None, :]
            weight = weight_y[:, :, None] * weight_x[:, None, :] * (inside & valid[:, None, None])
            total = total + pixels[image[:, None, None], index] * weight[..., None]
    bins: torch.Tensor = total.unflatten(1, (size, SAMPLES)).unflatten(3, (size, SAMPLES)).mean(dim=(2, 4))
    return bins.permute(0, 3, 1, 2)


def _on_cpu(
    features: Sequence[torch.Tensor],
    rois: torch.Tensor,
    image: torch.Tensor,
    valid: torch.Tensor,
    level: torch.Tensor,
    size: int,
    first_stride: int,
) -> torch.Tensor:
    boxes = torch.cat((image[:, None].float(), rois), dim=1)
    pooled = torch.zeros(len(rois), features[0].shape[1], size, size, dtype=features[0].dtype)
    for index, feature in enumerate(features):
        regions = (valid & (level == index)).nonzero()[:, 0]
        of_level = torchvision.ops.roi_align(feature, boxes[regions], size, 1 / (first_stride << index), SAMPLES)
        pooled = pooled.index_copy(0, regions, of_level.to(pooled.dtype))
    return pooled.contiguous(memory_format=torch.channels_last)
