"""The GPU kernel of trainers.data.crop: one kernel for all image sizes, which compiles in a second."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainers.data.jpeg import Decoded

BLOCK = 256  # output values of a program, all in one row


@triton.jit
def _cut(  # type: ignore[no-untyped-def]
    pixels, offsets, sizes, interleaved, crops, flips, out_sizes, out, height, width, BLOCK: tl.constexpr
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1)
    value = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    column, channel = value // 3, value % 3
    source_height, source_width = tl.load(sizes + image * 2).to(tl.int32), tl.load(sizes + image * 2 + 1).to(tl.int32)
    out_height, out_width = tl.load(out_sizes + image * 2).to(tl.int32), tl.load(out_sizes + image * 2 + 1).to(tl.int32)
    x0, y0 = tl.load(crops + image * 4), tl.load(crops + image * 4 + 1)
    x_scale = (tl.load(crops + image * 4 + 2) - x0) / out_width
    y_scale = (tl.load(crops + image * 4 + 3) - y0) / out_height
    x_apart = tl.minimum(tl.sqrt(tl.maximum((x_scale * x_scale - 1) / 6, 0)), x_scale / 4)
    y_apart = tl.minimum(tl.sqrt(tl.maximum((y_scale * y_scale - 1) / 6, 0)), y_scale / 4)
    place = tl.where(tl.load(flips + image) != 0, out_width - 1 - column, column)
    shown = column < tl.where(row < out_height, out_width, 0)
    by_pixel = tl.load(interleaved + image) != 0
    pixel_step = tl.where(by_pixel, 3, 1)
    # int64, because a large image has more than 2**31 bytes.
    plane = source_height.to(tl.int64) * source_width
    start = pixels + tl.load(offsets + image) + channel * tl.where(by_pixel, 1, plane)
    total = tl.zeros([BLOCK], tl.float32)
    for y_part in tl.static_range(2):
        y = y0 + (row + 0.5) * y_scale - 0.5 + (2 * y_part - 1) * y_apart
        top = tl.floor(y)
        for y_side in tl.static_range(2):
            y_weight = y - top if y_side else 1.0 - (y - top)
            line = tl.minimum(tl.maximum(top.to(tl.int32) + y_side, 0), source_height - 1).to(tl.int64)
            line = start + line * (source_width * pixel_step)
            for x_part in tl.static_range(2):
                x = x0 + (place + 0.5) * x_scale - 0.5 + (2 * x_part - 1) * x_apart
                left = tl.floor(x)
                for x_side in tl.static_range(2):
                    x_weight = x - left if x_side else 1.0 - (x - left)
                    index = tl.minimum(tl.maximum(left.to(tl.int32) + x_side, 0), source_width - 1) * pixel_step
                    total += tl.load(line + index, shown, 0).to(tl.float32) * (y_weight * x_weight)
    target = out + (image * height + row) * width * 3 + value
    tl.store(target, (0.25 * total + 0.5).to(tl.uint8), value < width * 3)  # rounds to nearest


def crop_resize(
    decoded: Decoded, crops: torch.Tensor, flips: torch.Tensor, out_sizes: torch.Tensor, canvas: tuple[int, int]
) -> torch.Tensor:
    """Compute trainers.data.crop.crop_resize for contiguous tensors on a GPU."""
    height, width = canvas
    out = torch.empty(len(crops), height, width, 3, dtype=torch.uint8, device=crops.device)
    grid = (len(crops), height, triton.cdiv(width * 3, BLOCK))
    _cut[grid](
        decoded.pixels, decoded.offsets, decoded.sizes, decoded.interleaved, crops, flips, out_sizes,
        out, height, width, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)
