"""The GPU kernels of trainers.ops.roi_align: one program for each region and bin handles all channels."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

MAX_LEVELS = 4


@triton.jit
def _place(level, p0, p1, p2, p3):  # type: ignore[no-untyped-def]
    pointer = p0
    if level == 1:
        pointer = p1
    elif level == 2:
        pointer = p2
    elif level == 3:
        pointer = p3
    return pointer


@triton.jit
def _start(rois, roi, level, stride):  # type: ignore[no-untyped-def]
    """Return corner and size of a region in cells of its level; a region is at least one cell large."""
    scale = 1.0 / (stride << level).to(tl.float32)
    x0 = tl.load(rois + roi * 4) * scale
    y0 = tl.load(rois + roi * 4 + 1) * scale
    width = tl.maximum(tl.load(rois + roi * 4 + 2) * scale - x0, 1.0)
    height = tl.maximum(tl.load(rois + roi * 4 + 3) * scale - y0, 1.0)
    return x0, y0, width, height


@triton.jit
def _axis(position, length):  # type: ignore[no-untyped-def]
    """Return the two cells around a sample, the share of the second, and whether the sample is on the map."""
    inside = (position >= -1.0) & (position <= length)
    position = tl.maximum(position, 0.0)
    low = tl.minimum(position.to(tl.int32), length - 1)
    high = tl.minimum(low + 1, length - 1)
    share = tl.where(low >= length - 1, 0.0, position - low.to(tl.float32))
    return low, high, share, inside


@triton.jit
def _roi_align_forward(  # type: ignore[no-untyped-def]
    f0, f1, f2, f3, rois, image, valid, levels, out, height, width, stride, num_channels,
    SIZE: tl.constexpr, SAMPLES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    roi = tl.program_id(0).to(tl.int64)
    y_bin, x_bin = tl.program_id(1) // SIZE, tl.program_id(1) % SIZE
    channel = tl.arange(0, CHANNELS)
    in_channels = channel < num_channels
    target = out + (roi * SIZE * SIZE + tl.program_id(1)) * num_channels + channel
    total = tl.zeros([CHANNELS], tl.float32)
    if tl.load(valid + roi) != 0:
        level = tl.load(levels + roi).to(tl.int32)
        feature = _place(level, f0, f1, f2, f3)
        rows, columns = height >> level, width >> level
        x0, y0, roi_width, roi_height = _start(rois, roi, level, stride)
        feature += tl.load(image + roi) * rows * columns * num_channels
        for sample in tl.static_range(SAMPLES * SAMPLES):
            y = y0 + roi_height / SIZE * (y_bin + (sample // SAMPLES + 0.5) / SAMPLES)
            x = x0 + roi_width / SIZE * (x_bin + (sample % SAMPLES + 0.5) / SAMPLES)
            y_low, y_high, y_share, y_in = _axis(y, rows)
            x_low, x_high, x_share, x_in = _axis(x, columns)
            weight = tl.where(y_in & x_in, 1.0 / (SAMPLES * SAMPLES), 0.0)
            a = tl.load(feature + (y_low * columns + x_low) * num_channels + channel, in_channels, 0.0).to(tl.float32)
            b = tl.load(feature + (y_low * columns + x_high) * num_channels + channel, in_channels, 0.0).to(tl.float32)
            c = tl.load(feature + (y_high * columns + x_low) * num_channels + channel, in_channels, 0.0).to(tl.float32)
            d = tl.load(feature + (y_high * columns + x_high) * num_channels + channel, in_channels, 0.0).to(tl.float32)
            upper = a + (b - a) * x_share
            lower = c + (d - c) * x_share
            total += weight * (upper + (lower - upper) * y_share)
    tl.store(target, total.to(out.dtype.element_ty), in_channels)


@triton.jit
def _roi_align_backward(  # type: ignore[no-untyped-def]
    g0, g1, g2, g3, rois, image, valid, levels, gradient, height, width, stride, num_channels,
    SIZE: tl.constexpr, SAMPLES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    roi = tl.program_id(0).to(tl.int64)
    if tl.load(valid + roi) != 0:
        y_bin, x_bin = tl.program_id(1) // SIZE, tl.program_id(1) % SIZE
        channel = tl.arange(0, CHANNELS)
        in_channels = channel < num_channels
        source = gradient + (roi * SIZE * SIZE + tl.program_id(1)) * num_channels + channel
        upstream = tl.load(source, in_channels, 0.0).to(tl.float32)
        level = tl.load(levels + roi).to(tl.int32)
        target = _place(level, g0, g1, g2, g3)
        rows, columns = height >> level, width >> level
        x0, y0, roi_width, roi_height = _start(rois, roi, level, stride)
        target += tl.load(image + roi) * rows * columns * num_channels
        for sample in tl.static_range(SAMPLES * SAMPLES):
            y = y0 + roi_height / SIZE * (y_bin + (sample // SAMPLES + 0.5) / SAMPLES)
            x = x0 + roi_width / SIZE * (x_bin + (sample % SAMPLES + 0.5) / SAMPLES)
            y_low, y_high, y_share, y_in = _axis(y, rows)
            x_low, x_high, x_share, x_in = _axis(x, columns)
            weight = tl.where(y_in & x_in, 1.0 / (SAMPLES * SAMPLES), 0.0)
            upper, lower = upstream * (weight * (1.0 - y_share)), upstream * (weight * y_share)
            row = target + y_low * columns * num_channels + channel
            tl.atomic_add(row + x_low * num_channels, upper * (1.0 - x_share), in_channels, sem="relaxed")
            tl.atomic_add(row + x_high * num_channels, upper * x_share, in_channels, sem="relaxed")
            row = target + y_high * columns * num_channels + channel
            tl.atomic_add(row + x_low * num_channels, lower * (1.0 - x_share), in_channels, sem="relaxed")
            tl.atomic_add(row + x_high * num_channels, lower * x_share, in_channels, sem="relaxed")


class RoiAlign(torch.autograd.Function):
    """Computes trainers.ops.roi_align.roi_align; the features' gradients are summed in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        rois: torch.Tensor,
        image: torch.Tensor,
        valid: torch.Tensor,
        level: torch.Tensor,
        size: int,
        stride: int,
        samples: int,
        *features: torch.Tensor,
    ) -> torch.Tensor:
        features = tuple(feature.contiguous(memory_format=torch.channels_last) for feature in features)
        _, channels, height, width = features[0].shape
        halves = [(height >> index, width >> index) for index in range(len(features))]
        assert [tuple(feature.shape[2:]) for feature in features] == halves, "each level has half the resolution"
        out = torch.empty(
            (len(rois), channels, size, size), dtype=features[0].dtype, device=rois.device,
            memory_format=torch.channels_last,
        )  # fmt: skip
        ctx.save_for_backward(rois, image, valid, level)
        ctx.scalars = size, stride, samples
        ctx.shapes, ctx.dtype = [feature.shape for feature in features], features[0].dtype
        _launch(_roi_align_forward, features, (rois.contiguous(), image, valid, level), out, *ctx.scalars)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        sums = [
            torch.empty(shape, device=gradient.device, memory_format=torch.channels_last).zero_()
            for shape in ctx.shapes
        ]
        _launch(_roi_align_backward, sums, ctx.saved_tensors, gradient, *ctx.scalars)
        return (None,) * 7 + tuple(total.to(ctx.dtype) for total in sums)


def _launch(
    kernel: Any,
    maps: tuple[torch.Tensor, ...] | list[torch.Tensor],
    regions: tuple[torch.Tensor, ...],
    pooled: torch.Tensor,
    size: int,
    stride: int,
    samples: int,
) -> None:
    """Launch a kernel; the forward one writes `pooled`, the backward one reads it."""
    assert 1 <= len(maps) <= MAX_LEVELS
    _, channels, height, width = maps[0].shape
    four = [*maps, *[maps[-1]] * (MAX_LEVELS - len(maps))]
    kernel[(len(regions[0]), size * size)](
        *four, *regions, pooled, height, width, stride, channels,
        SIZE=size, SAMPLES=samples, CHANNELS=triton.next_power_of_2(channels), num_warps=2,
    )  # fmt: skip
