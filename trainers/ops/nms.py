"""Greedy non-maximum suppression of many independent problems at once, in fixed shapes.

torchvision solves one problem a call and returns the remaining boxes, and the host has to wait for their number. Here
the GPU solves all problems in parallel and returns a mask. A first kernel sets one bit for each pair of boxes that
overlap too much. In a second kernel, one program for each problem does the greedy pass over these bits.
"""

from __future__ import annotations

import torch
from torchvision.ops import nms


def nms_mask(boxes: torch.Tensor, valid: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Return which boxes are kept: bool [B, K].

    Args:
        boxes: float32 [B, K, 4], x0 y0 x1 y1, by descending score within each problem
        valid: bool [B, K]; boxes that are not valid are neither kept nor suppress others
        iou_threshold: a box that overlaps an earlier kept one by more than this is dropped
    """
    if not boxes.is_cuda:
        if torch.compiler.is_compiling():  # Only torch.export traces this function.
            return as_a_graph(boxes, valid, iou_threshold)
        return _on_cpu(boxes, valid, iou_threshold)
    from trainers.ops import nms_triton

    return nms_triton.keep(boxes.contiguous(), valid.contiguous(), iou_threshold)


def nms_of_classes(
    boxes: torch.Tensor, labels: torch.Tensor, valid: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    """Return which boxes are kept, bool [B, K], if only boxes of one class suppress each other.

    Boxes are shifted by class, `labels` int64 [B, K], so that classes do not overlap. Boxes less than a hundredth of a
    pixel wide or high are dropped.
    """
    large = ((boxes[..., 2:] - boxes[..., :2]) >= 1e-2).all(dim=2)
    apart = labels * (boxes.amax() + 1)
    return nms_mask(boxes + apart.unsqueeze(2), valid & large, iou_threshold)


def as_a_graph(boxes: torch.Tensor, valid: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Compute `nms_mask` in PyTorch's operators, for an exported program that runs without torchvision.

    A box is kept if no earlier kept box overlaps it. This rule is applied to all boxes at once until nothing changes:
    the first box is right from the start, and each pass settles at least one more.
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
    for problem, (candidates, real) in enumerate(zip(boxes, valid, strict=True)):
        index = real.nonzero()[:, 0]
        order = torch.arange(len(index), 0, -1, dtype=torch.float32)  # already sorted
        keep[problem, index[nms(candidates[index], order, iou_threshold)]] = True
    return keep
