"""The GPU kernels of best_overlaps.py. They skip the room for objects that an image does not have."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 512  # anchors of a program


@triton.jit
def _corners(boxes, place, exists):  # type: ignore[no-untyped-def]
    x0, y0 = tl.load(boxes + place * 4, exists, 0.0), tl.load(boxes + place * 4 + 1, exists, 0.0)
    x1, y1 = tl.load(boxes + place * 4 + 2, exists, 0.0), tl.load(boxes + place * 4 + 3, exists, 0.0)
    return x0, y0, x1, y1


@triton.jit
def _iou(x0, y0, x1, y1, boxes, place):  # type: ignore[no-untyped-def]
    """Return the overlaps with the box at `place`, as trainers.ops.boxes.pairwise_iou has them."""
    u0, v0, u1, v1 = _corners(boxes, place, True)
    width = tl.maximum(tl.minimum(x1, u1) - tl.maximum(x0, u0), 0.0)
    height = tl.maximum(tl.minimum(y1, v1) - tl.maximum(y0, v0), 0.0)
    intersection = width * height
    union = (x1 - x0) * (y1 - y0) + (u1 - u0) * (v1 - v0) - intersection
    return intersection / tl.maximum(union, 1e-9)


@triton.jit
def _most(anchors, boxes, real, most, num_anchors, num_objects, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Take the maximum of most[n, G] and of the overlaps of each object with a block of anchors."""
    first = tl.program_id(1).to(tl.int64) * num_objects
    anchor = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x0, y0, x1, y1 = _corners(anchors, anchor, anchor < num_anchors)
    for number in range(num_objects):
        if tl.load(real + first + number) != 0:
            iou = _iou(x0, y0, x1, y1, boxes, first + number)
            tl.atomic_max(
                most + first + number, tl.max(tl.where(anchor < num_anchors, iou, 0.0), axis=0), sem="relaxed"
            )


@triton.jit
def _matched(  # type: ignore[no-untyped-def]
    anchors, boxes, real, most, best, matched, is_most, num_anchors, num_objects, almost, BLOCK: tl.constexpr
):  # fmt: skip
    image = tl.program_id(1).to(tl.int64)
    first = image * num_objects
    anchor = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x0, y0, x1, y1 = _corners(anchors, anchor, anchor < num_anchors)
    largest, chosen = tl.full([BLOCK], -1.0, tl.float32), tl.zeros([BLOCK], tl.int64)
    owned = tl.zeros([BLOCK], tl.int1)
    for number in range(num_objects):
        if tl.load(real + first + number) != 0:
            iou = _iou(x0, y0, x1, y1, boxes, first + number)
            chosen = tl.where(iou > largest, number, chosen)
            largest = tl.maximum(iou, largest)
            limit = tl.load(most + first + number)
            owned = owned | (iou >= tl.where(limit > 0.0, limit * almost, 2.0))
    target = image * num_anchors + anchor
    tl.store(best + target, largest, anchor < num_anchors)
    tl.store(matched + target, chosen, anchor < num_anchors)
    tl.store(is_most + target, owned, anchor < num_anchors)


def best_overlaps(
    anchors: torch.Tensor, boxes: torch.Tensor, real: torch.Tensor, almost: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    num_anchors, (n, num_objects, _) = len(anchors), boxes.shape
    best = boxes.new_empty(n, num_anchors)
    matched, is_most = torch.empty_like(best, dtype=torch.int64), torch.empty_like(best, dtype=torch.bool)
    most, grid = boxes.new_zeros(n, num_objects), (triton.cdiv(num_anchors, BLOCK), n)
    _most[grid](anchors, boxes, real, most, num_anchors, num_objects, BLOCK=BLOCK)
    _matched[grid](anchors, boxes, real, most, best, matched, is_most, num_anchors, num_objects, almost, BLOCK=BLOCK)
    return best, matched, is_most
