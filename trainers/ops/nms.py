"""Greedy non-maximum suppression of many independent problems at once, in fixed shapes.

torchvision's takes one problem a call and returns as many boxes as are left, for which the host has to wait. Here all
problems are solved side by side on the GPU and the answer is a mask: first, in parallel, one bit for each pair of boxes
that overlap too much; then, one program a problem, the greedy pass over its boxes on these bits.
"""

from __future__ import annotations

import torch
from torchvision.ops import nms


def nms_mask(boxes: torch.Tensor, valid: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Which boxes are kept: bool [B, K].

    Args:
        boxes: float32 [B, K, 4], x0 y0 x1 y1, each problem's in descending order of their scores
        valid: bool [B, K]; the others are neither kept nor suppress any
        iou_threshold: a box that overlaps a kept one before it by more than this is dropped
    """
    if not boxes.is_cuda:
        if torch.compiler.is_compiling():  # by torch.export, since nothing compiles this
            return as_a_graph(boxes, valid, iou_threshold)
        return _on_cpu(boxes, valid, iou_threshold)
    from trainers.ops import nms_triton

    return nms_triton.keep(boxes.contiguous(), valid.contiguous(), iou_threshold)


def nms_of_classes(
    boxes: torch.Tensor, labels: torch.Tensor, valid: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    """Which boxes are kept, bool [B, K], if only those of one class suppress each other: others are moved apart.

    As `nms_mask`, with `labels` int64 [B, K]. Boxes less than a hundredth of a pixel wide or high are not kept.
    """
    large = ((boxes[..., 2:] - boxes[..., :2]) >= 1e-2).all(dim=2)
    apart = labels * (boxes.amax() + 1)
    return nms_mask(boxes + apart.unsqueeze(2), valid & large, iou_threshold)


def as_a_graph(boxes: torch.Tensor, valid: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """`nms_mask` in PyTorch's own operators, for a program that has to run without torchvision.

    A box is kept if no kept one before it overlaps it. That is asked of all at once, until the answer stays the same:
    the first box is right from the start, and each pass puts at least one more right for good.
    """
    from torch._higher_order_ops.while_loop import while_loop

    areas = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=2)
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp(min=0).prod(dim=3)
    union = (areas[:, :, None] + areas[:, None] - shared).clamp(min=torch.finfo(boxes.dtype).tiny)
    suppresses = (shared / union > iou_threshold).triu(diagonal=1)

    def changes(keep: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return (keep != before).any()

    def again(keep: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return valid & ~(suppresses & keep[:, :, None]).any(dim=1), keep.clone()

    keep, _ = while_loop(changes, again, (valid.clone(), ~valid))
    kept: torch.Tensor = keep
    return kept


def _on_cpu(boxes: torch.Tensor, valid: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    keep = torch.zeros_like(valid)
    for problem, (own, real) in enumerate(zip(boxes, valid, strict=True)):
        index = real.nonzero()[:, 0]
        order = torch.arange(len(index), 0, -1, dtype=torch.float32)  # already sorted
        keep[problem, index[nms(own[index], order, iou_threshold)]] = True
    return keep
