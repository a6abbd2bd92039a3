"""The GPU kernels of norm_relu_pool.py. Maps are channels_last; a tile is some columns of a row, with all channels.

The backward pass goes over the maps twice, as that of each batch normalisation: for the sums over all pixels, then for
the gradient of each pixel. Both recompute the pool's gradient, which is therefore never in memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

COLUMNS = 8  # of a tile
WARPS = 4  # with 8 columns, the quickest of the sizes tried for 64 channels on an H200
NOTHING = 9  # the place of a window in which ReLU lets nothing through
SUMMING = 2_112  # programs that sum, 16 for each of an H200's 132 multiprocessors


@triton.jit
def _batch_norm_pool(  # type: ignore[no-untyped-def]
    maps, weight, bias, mean, rstd, pooled, places, height, width, rows, columns, num_channels,
    COLUMNS: tl.constexpr, CHANNELS: tl.constexpr, NOTHING: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    image, i = (tl.program_id(0) // rows).to(tl.int64), tl.program_id(0) % rows + tl.zeros_like(j)
    k = tl.arange(0, CHANNELS)[None, :]
    has = k < num_channels
    scale = tl.load(weight + k, has, 0.0) * tl.load(rstd + k, has, 0.0)
    shift = tl.load(bias + k, has, 0.0) - tl.load(mean + k, has, 0.0) * scale
    most = tl.full([COLUMNS, CHANNELS], float("-inf"), tl.float32)
    place = tl.full([COLUMNS, CHANNELS], NOTHING, tl.int32)
    for tap in tl.static_range(9):
        y, x = 2 * i + (tap // 3 - 1), 2 * j + (tap % 3 - 1)
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width) & has
        source = maps + ((image * height + y) * width + x) * num_channels + k
        value = tl.load(source, inside, 0.0).to(tl.float32) * scale
        larger = inside & ~(value <= most)  # so a NaN is taken: a NaN scale makes all values NaN
        most, place = tl.where(larger, value, most), tl.where(larger, tap, place)
    most += shift
    dead = most <= 0.0
    target = ((image * rows + i) * columns + j) * num_channels + k
    stored = (j < columns) & has
    tl.store(pooled + target, tl.where(dead, 0.0, most).to(pooled.dtype.element_ty), stored)
    tl.store(places + target, tl.where(dead, NOTHING, place).to(tl.int8), stored)


@triton.jit
def _window(gradient, places, image, i, j, rows, columns, num_channels, k, has):  # type: ignore[no-untyped-def]
    """Return gradient and place of the windows in row `i` and columns `j`."""
    inside = (i < rows) & (j < columns) & has
    at = ((image * rows + i) * columns + j) * num_channels + k
    return tl.load(gradient + at, inside, 0.0).to(tl.float32), tl.load(places + at, inside, -1).to(tl.int32)


@triton.jit
def _unpooled(gradient, places, image, i, j, rows, columns, num_channels, k, has):  # type: ignore[no-untyped-def]
    """Return the pool's gradients of the pixels in the middle of windows, right of it, below, and below on the right.

    A window shares its outer pixels with its neighbours. The four pixels take part in four windows at most.
    """
    own, place = _window(gradient, places, image, i, j, rows, columns, num_channels, k, has)
    middle, right = tl.where(place == 4, own, 0.0), tl.where(place == 5, own, 0.0)
    below, last = tl.where(place == 7, own, 0.0), tl.where(place == 8, own, 0.0)
    own, place = _window(gradient, places, image, i, j + 1, rows, columns, num_channels, k, has)
    right += tl.where(place == 3, own, 0.0)
    last += tl.where(place == 6, own, 0.0)
    own, place = _window(gradient, places, image, i + 1, j, rows, columns, num_channels, k, has)
    below += tl.where(place == 1, own, 0.0)
    last += tl.where(place == 2, own, 0.0)
    own, place = _window(gradient, places, image, i + 1, j + 1, rows, columns, num_channels, k, has)
    last += tl.where(place == 0, own, 0.0)
    return middle, right, below, last


@triton.jit
def _normalised(maps, image, y, x, height, width, num_channels, k, has, mean, rstd):  # type: ignore[no-untyped-def]
    inside = (y < height) & (x < width) & has
    value = tl.load(maps + ((image * height + y) * width + x) * num_channels + k, inside, 0.0)
    return (value.to(tl.float32) - mean) * rstd


@triton.jit
def _batch_norm_sums(  # type: ignore[no-untyped-def]
    gradient, places, maps, mean, rstd, sums, height, width, rows, columns, num_channels, num_rows,
    COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of the normalised pixels, and their products with them, over some rows of windows."""
    k = tl.arange(0, CHANNELS)[None, :]
    has = k < num_channels
    mu, inverse = tl.load(mean + k, has, 0.0), tl.load(rstd + k, has, 0.0)
    plain = tl.zeros([COLUMNS, CHANNELS], tl.float32)
    weighted = tl.zeros([COLUMNS, CHANNELS], tl.float32)
    for row in range(tl.program_id(0), num_rows, tl.num_programs(0)):
        image = (row // rows).to(tl.int64)
        for first in range(0, columns, COLUMNS):
            j = first + tl.arange(0, COLUMNS)[:, None]
            i = row % rows + tl.zeros_like(j)
            a, b, c, d = _unpooled(gradient, places, image, i, j, rows, columns, num_channels, k, has)
            plain += a + b + c + d
            y, x = 2 * i, 2 * j
            weighted += a * _normalised(maps, image, y, x, height, width, num_channels, k, has, mu, inverse)
            weighted += b * _normalised(maps, image, y, x + 1, height, width, num_channels, k, has, mu, inverse)
            weighted += c * _normalised(maps, image, y + 1, x, height, width, num_channels, k, has, mu, inverse)
            weighted += d * _normalised(maps, image, y + 1, x + 1, height, width, num_channels, k, has, mu, inverse)
    target = sums + tl.program_id(0) * 2 * num_channels + tl.arange(0, CHANNELS)
    tl.store(target, tl.sum(plain, axis=0), tl.arange(0, CHANNELS) < num_channels)
    tl.store(target + num_channels, tl.sum(weighted, axis=0), tl.arange(0, CHANNELS) < num_channels)


@triton.jit
def _store(out, own, maps, image, y, x, height, width, num_channels, k, has, mu, inverse, scale, plain, weighted):  # type: ignore[no-untyped-def]
    """Store the gradients of the pixels in row `y` and columns `x`; `own` are those of their normalised values."""
    normalised = _normalised(maps, image, y, x, height, width, num_channels, k, has, mu, inverse)
    value = scale * (own - plain - normalised * weighted)
    target = out + ((image * height + y) * width + x) * num_channels + k
    tl.store(target, value.to(out.dtype.element_ty), (y < height) & (x < width) & has)


@triton.jit
def _batch_norm_backward(  # type: ignore[no-untyped-def]
    gradient, places, maps, weight, mean, rstd, totals, out, height, width, rows, columns, num_channels, share,
    COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Store the gradients of four pixels for each of some windows; `share` is that of a pixel in the means."""
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    image, i = (tl.program_id(0) // rows).to(tl.int64), tl.program_id(0) % rows + tl.zeros_like(j)
    k = tl.arange(0, CHANNELS)[None, :]
    has = k < num_channels
    mu, inverse = tl.load(mean + k, has, 0.0), tl.load(rstd + k, has, 0.0)
    scale = tl.load(weight + k, has, 0.0) * inverse
    plain, weighted = tl.load(totals + k, has, 0.0) * share, tl.load(totals + num_channels + k, has, 0.0) * share
    a, b, c, d = _unpooled(gradient, places, image, i, j, rows, columns, num_channels, k, has)
    y, x = 2 * i, 2 * j
    _store(out, a, maps, image, y, x, height, width, num_channels, k, has, mu, inverse, scale, plain, weighted)
    _store(out, b, maps, image, y, x + 1, height, width, num_channels, k, has, mu, inverse, scale, plain, weighted)
    _store(out, c, maps, image, y + 1, x, height, width, num_channels, k, has, mu, inverse, scale, plain, weighted)
    _store(out, d, maps, image, y + 1, x + 1, height, width, num_channels, k, has, mu, inverse, scale, plain, weighted)


def pool(
    maps: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    out: torch.Tensor,
    places: torch.Tensor,
) -> None:
    """Fill `out` with the pooled maps, and `places`, int8, with the places of their maxima."""
    n, channels, height, width = maps.shape
    rows, columns = out.shape[2:]
    _batch_norm_pool[(n * rows, triton.cdiv(columns, COLUMNS))](
        maps, weight, bias, mean, rstd, out, places, height, width, rows, columns, channels,
        COLUMNS=COLUMNS, CHANNELS=triton.next_power_of_2(channels), NOTHING=NOTHING, num_warps=WARPS,
    )  # fmt: skip


def gradients(
    gradient: torch.Tensor, maps: torch.Tensor, places: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor,
    rstd: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the gradients of maps, weight and bias."""
    n, channels, height, width = maps.shape
    rows, columns = places.shape[2:]
    tile = {"COLUMNS": COLUMNS, "CHANNELS": triton.next_power_of_2(channels), "num_warps": WARPS}
    num_programs = min(n * rows, SUMMING)
    sums = torch.empty(num_programs, 2, channels, device=maps.device)
    _batch_norm_sums[(num_programs,)](
        gradient, places, maps, mean, rstd, sums, height, width, rows, columns, channels, n * rows, **tile
    )
    totals, out = sums.sum(dim=0), torch.empty_like(maps)
    _batch_norm_backward[(n * rows, triton.cdiv(columns, COLUMNS))](
        gradient, places, maps, weight, mean, rstd, totals, out, height, width, rows, columns, channels,
        1.0 / (n * height * width), **tile,
    )  # fmt: skip
    return out, totals[1].clone(), totals[0].clone()
