"""Crops, resizes and flips every image of a batch, in one kernel on a GPU, and chooses the crops of classifiers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tracking.base import old_paths
from trainers.data.jpeg import Decoded

CPU_CHUNK = 4  # images; with more, eager mode's intermediate tensors do not fit into the processor's caches

# Random crops are those of C. Szegedy et al. 2014, arXiv:1409.4842.
MIN_AREA = 0.08  # least share of the image's area
ASPECT = (3 / 4, 4 / 3)  # width over height
NUM_TRIALS = 10
NUM_DRAWS = 2 * NUM_TRIALS + 3  # uniform random numbers for an image's crop


@dataclass(frozen=True)
class SquareView:
    """Square crops for classifiers: random ones for training, the centre of each image for evaluation."""

    image_size: int = 224  # pixels, side of the square
    eval_resize: int = 256  # pixels, size of an image's shorter side before its centre is cropped
    min_crop_area: float = MIN_AREA  # least share of a training image that its crop shows


def random_crops(draws: np.ndarray, sizes: np.ndarray, min_area: float = MIN_AREA) -> tuple[np.ndarray, np.ndarray]:
    """Return crops float32 [n, 4] of random area, shape and place, and flips bool [n], for images of `sizes` [n, 2].

    `draws` holds NUM_DRAWS numbers from 0 to 1 for each image. A crop's area is `min_area` to 1 of the image's. The
    first trial that fits into the image is taken. If no trial fits, the crop is the largest one of an allowed shape in
    the centre.
    """
    height, width = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
    area = (min_area + (1 - min_area) * draws[:, :NUM_TRIALS]) * (height * width)[:, None]
    low, high = np.log(ASPECT)
    aspect = np.exp(low + (high - low) * draws[:, NUM_TRIALS : 2 * NUM_TRIALS])
    widths, heights = np.sqrt(area * aspect), np.sqrt(area / aspect)
    fits = (widths <= width[:, None]) & (heights <= height[:, None])
    first = (np.arange(len(sizes)), fits.argmax(axis=1))
    some = fits.any(axis=1)
    crop_width = np.where(some, widths[first], np.minimum(width, height * ASPECT[1]))
    crop_height = np.where(some, heights[first], np.minimum(height, width / ASPECT[0]))
    x0 = (width - crop_width) * np.where(some, draws[:, -3], 0.5)
    y0 = (height - crop_height) * np.where(some, draws[:, -2], 0.5)
    return np.stack([x0, y0, x0 + crop_width, y0 + crop_height], axis=1).astype(np.float32), draws[:, -1] < 0.5


def centre_crops(sizes: np.ndarray, resize: int, crop: int) -> np.ndarray:
    """Return the central crops, float32 [n, 4], that fill `crop` pixels once the shorter side has `resize` pixels."""
    side = sizes.min(axis=1, keepdims=True) * (crop / resize)
    middle = sizes[:, ::-1] / 2
    return np.concatenate([middle - side / 2, middle + side / 2], axis=1).astype(np.float32)


def crop_resize(
    decoded: Decoded, crops: torch.Tensor, flips: torch.Tensor, out_sizes: torch.Tensor, canvas: tuple[int, int]
) -> torch.Tensor:
    """Crop images, resize them to `out_sizes`, and place them at the top left of a black canvas.

    `crops` is float32 [n, 4], x0 y0 x1 y1 in pixels of the source; `flips` is bool [n], left to right; `out_sizes` is
    int64 [n, 2], height and width, within `canvas` (height, width). All are on the device of `decoded`. Returns uint8
    [n, 3, height, width] with channels_last strides.

    Enlarging is bilinear. Shrinking averages 2x2 bilinear samples for each output pixel, at such distances that they
    blur like Pillow's bilinear filter; from 1.27 source pixels per output pixel on, they are the centres of its
    quarters. Pixel centres are at halves; beyond the image its border is repeated.
    """
    if decoded.pixels.is_cuda:
        from trainers.data import crop_triton  # Only PyTorch for GPUs includes Triton.

        return crop_triton.crop_resize(decoded, crops, flips, out_sizes, canvas)
    arguments = (decoded.offsets, decoded.sizes, decoded.interleaved, crops, flips, out_sizes)
    chunks = zip(*(tensor.split(CPU_CHUNK) for tensor in arguments), strict=True)
    parts = [_gather(decoded.pixels, chunk, canvas) for chunk in chunks]
    return torch.cat(parts).contiguous(memory_format=torch.channels_last)


def _gather(pixels: torch.Tensor, per_image: tuple[torch.Tensor, ...], canvas: tuple[int, int]) -> torch.Tensor:
    """Crop on the CPU: every output value gathers its 4x4 neighbours from the flat buffer; uint8 [n, 3, h, w]."""
    offsets, sizes, interleaved, crops, flips, out_sizes = per_image
    upright = torch.zeros_like(flips)
    rows, row_weights = _taps(crops[:, 1], crops[:, 3], upright, out_sizes[:, 0], sizes[:, 0], canvas[0])
    columns, column_weights = _taps(crops[:, 0], crops[:, 2], flips, out_sizes[:, 1], sizes[:, 1], canvas[1])
    channel_step = torch.where(interleaved, 1, sizes[:, 0] * sizes[:, 1])
    pixel_step = torch.where(interleaved, 3, 1)
    starts = offsets[:, None] + channel_step[:, None] * torch.arange(3)
    rows, row_weights = (tap[:, :, None, :, None] for tap in (rows, row_weights))
    columns, column_weights = (tap[:, :, None, None, :] for tap in (columns, column_weights))
    rows = rows * (sizes[:, 1] * pixel_step)[:, None, None, None] + starts[:, :, None, None]
    columns = columns * pixel_step[:, None, None, None]
    total = torch.zeros(())
    for row, row_weight in zip(rows, row_weights, strict=True):
        line = torch.zeros(())
        for column, column_weight in zip(columns, column_weights, strict=True):
            index = row + column
            # In eager mode index_select is ten times as fast as pixels[index].
            line = line + pixels.index_select(0, index.flatten()).view(index.shape).float() * column_weight
        total = total + line * row_weight
    return (total + 0.5).to(torch.uint8)  # rounds to nearest


def _taps(
    start: torch.Tensor,
    stop: torch.Tensor,
    flips: torch.Tensor,
    out_size: torch.Tensor,
    size: torch.Tensor,
    length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the four source positions of every output pixel along one axis, int64, and their weights: [4, n, length].

    Weights are zero from `out_size` on. `start`, `stop`, `flips`, `out_size` and `size` are [n].
    """
    place = torch.arange(length)
    shown = place < out_size[:, None]
    place = torch.where(flips[:, None], out_size[:, None] - 1 - place, place)
    scale = ((stop - start) / out_size)[:, None]
    middle = start[:, None] + (place + 0.5) * scale - 0.5
    apart = torch.minimum(((scale.square() - 1) / 6).clamp(min=0).sqrt(), scale / 4)  # variance of Pillow's filter
    positions, weights = [], []
    for centre in (middle - apart, middle + apart):
        low = centre.floor()
        for position, weight in ((low, low + 1 - centre), (low + 1, centre - low)):
            positions.append(torch.minimum(position.long().clamp(min=0), size[:, None] - 1))
            weights.append(weight * (0.5 * shown))
    return torch.stack(positions), torch.stack(weights)


old_paths.watch(__name__)
