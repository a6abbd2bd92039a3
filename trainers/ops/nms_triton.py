"""The GPU kernels of trainers.ops.nms."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

WORD = 32  # bits of an int32
ROWS = 64  # boxes that a program of the first kernel compares with the boxes of one word


@triton.jit
def _overlaps(boxes, valid, bits, num_boxes, num_words, threshold, WORD: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Set bit j of bits[b, i, w] if box i, once kept, suppresses box 32 w + j."""
    problem = tl.program_id(0).to(tl.int64)
    word = tl.program_id(2)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = word * WORD + tl.arange(0, WORD)
    row_in, column_in = row < num_boxes, column < num_boxes
    a = boxes + (problem * num_boxes + row) * 4
    b = boxes + (problem * num_boxes + column) * 4
    x0, y0 = tl.load(a, row_in, 0.0), tl.load(a + 1, row_in, 0.0)
    x1, y1 = tl.load(a + 2, row_in, 0.0), tl.load(a + 3, row_in, 0.0)
    u0, v0 = tl.load(b, column_in, 0.0), tl.load(b + 1, column_in, 0.0)
    u1, v1 = tl.load(b + 2, column_in, 0.0), tl.load(b + 3, column_in, 0.0)
    width = tl.maximum(tl.minimum(x1[:, None], u1[None, :]) - tl.maximum(x0[:, None], u0[None, :]), 0.0)
    height = tl.maximum(tl.minimum(y1[:, None], v1[None, :]) - tl.maximum(y0[:, None], v0[None, :]), 0.0)
    intersection = width * height
    union = ((x1 - x0) * (y1 - y0))[:, None] + ((u1 - u0) * (v1 - v0))[None, :] - intersection
    real = tl.load(valid + problem * num_boxes + row, row_in, 0) != 0
    suppresses = (intersection > threshold * union) & (column[None, :] > row[:, None]) & real[:, None]
    packed = tl.sum(tl.where(suppresses, 1 << tl.arange(0, WORD)[None, :], 0), axis=1)
    tl.store(bits + (problem * num_boxes + row) * num_words + word, packed, row_in)


@triton.jit
def _greedy(bits, suppressed, num_boxes, num_words, WORDS: tl.constexpr, WORD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Do the greedy pass of one problem: in order, each kept box suppresses others."""
    problem = tl.program_id(0).to(tl.int64)
    word = tl.arange(0, WORDS)
    inside = word < num_words
    gone = tl.zeros([WORDS], tl.int32)
    row = bits + problem * num_boxes * num_words + word
    for box in tl.range(0, num_boxes, num_stages=8):
        # The address does not depend on earlier boxes, so that loads are prefetched.
        overlapping = tl.load(row + box * num_words, inside, 0)
        gone_word = tl.sum(tl.where(word == box // WORD, gone, 0), axis=0)
        kept = ((gone_word >> (box % WORD)) & 1) == 0
        gone = tl.where(kept, gone | overlapping, gone)
    tl.store(suppressed + problem * num_words + word, gone, inside)


def keep(boxes: torch.Tensor, valid: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Compute trainers.ops.nms.nms_mask for contiguous tensors on a GPU."""
    num_problems, num_boxes = valid.shape
    num_words = triton.cdiv(num_boxes, WORD)
    bits = torch.empty(num_problems, num_boxes, num_words, dtype=torch.int32, device=boxes.device)
    suppressed = torch.empty(num_problems, num_words, dtype=torch.int32, device=boxes.device)
    grid = (num_problems, triton.cdiv(num_boxes, ROWS), num_words)
    _overlaps[grid](boxes, valid, bits, num_boxes, num_words, iou_threshold, WORD=WORD, ROWS=ROWS, num_warps=4)
    _greedy[(num_problems,)](
        bits, suppressed, num_boxes, num_words, WORDS=triton.next_power_of_2(num_words), WORD=WORD, num_warps=1
    )
    shifts = torch.arange(WORD, dtype=torch.int32, device=boxes.device)
    gone = ((suppressed[:, :, None] >> shifts) & 1).flatten(1)[:, :num_boxes]
    return valid & (gone == 0)
