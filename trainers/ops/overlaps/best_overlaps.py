"""For each anchor its largest overlap with an object, and whether it is the best anchor of any object."""

from __future__ import annotations

import torch

from trainers.ops.boxes import pairwise_iou

ALMOST = 1 - 1e-6  # leaves room for rounding, since a compiler may recompute an overlap


def best_overlaps(
    anchors: torch.Tensor, boxes: torch.Tensor, real: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each anchor's largest overlap, its object, and whether it is the best anchor of any object.

    These are float32 [n, A], -1 where an image has no object; int64 [n, A]; and bool [n, A], true only for overlaps
    above 0, ties included.

    Args:
        anchors: float32 [A, 4]
        boxes: float32 [n, G, 4]
        real: bool [n, G], False for padding among the boxes
    """
    if boxes.is_cuda:
        best, matched, is_most = _best_overlaps(anchors, boxes, real)
        return best, matched, is_most
    iou = torch.where(real[:, None], pairwise_iou(anchors, boxes), -1.0)
    best, matched = iou.max(dim=2)
    most = iou.amax(dim=1, keepdim=True)
    return best, matched, ((iou >= most * ALMOST) & (most > 0)).any(dim=2)


@torch.library.custom_op("timetrial::best_overlaps", mutates_args=(), device_types="cuda")
def _best_overlaps(
    anchors: torch.Tensor, boxes: torch.Tensor, real: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    from trainers.ops.overlaps import best_overlaps_triton

    return best_overlaps_triton.best_overlaps(anchors.contiguous(), boxes.contiguous(), real.contiguous(), ALMOST)


@_best_overlaps.register_fake
def _(anchors: torch.Tensor, boxes: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, ...]:
    size = boxes.shape[0], anchors.shape[0]
    return tuple(boxes.new_empty(size, dtype=kind) for kind in (torch.float32, torch.int64, torch.bool))
