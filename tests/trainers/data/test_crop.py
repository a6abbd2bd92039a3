"""Cropping and resizing: equal to a slow plain computation, and to what the rectangles mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.trainers import triton_on_cpu
from tests.trainers.jpegs import picture
from trainers.data import crop
from trainers.data.crop import crop_resize
from trainers.data.jpeg.reader import Decoded

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def packed(images: Sequence[np.ndarray], interleaved: bool, device: torch.device = CPU) -> Decoded:
    """Images uint8 [h, w, 3] in one buffer, in another order than their own, with a gap between them."""
    flat, offsets = [np.zeros(3, np.uint8)], {}
    for index in reversed(range(len(images))):
        offsets[index] = sum(map(len, flat))
        flat.append((images[index] if interleaved else images[index].transpose(2, 0, 1)).ravel())
    sizes = np.array([image.shape[:2] for image in images])
    return Decoded(
        torch.from_numpy(np.concatenate(flat)).to(device),
        torch.tensor([offsets[index] for index in range(len(images))], device=device),
        torch.from_numpy(sizes).to(device),
        torch.full((len(images),), interleaved, device=device),
        sizes,
    )


def cut(
    images: Sequence[np.ndarray],
    crops: Any,
    flips: Any,
    out_sizes: Any,
    canvas: tuple[int, int],
    interleaved: bool = False,
    device: torch.device = CPU,
) -> torch.Tensor:
    result = crop_resize(
        packed(images, interleaved, device),
        torch.tensor(crops, dtype=torch.float32, device=device),
        torch.tensor(flips, device=device),
        torch.tensor(out_sizes, device=device),
        canvas,
    )
    assert result.dtype == torch.uint8
    assert result.shape == (len(images), 3, *canvas)
    assert result.is_contiguous(memory_format=torch.channels_last)
    return result


def bilinear(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """The colour at a point; pixel centres lie at halves, the border is repeated."""
    height, width = image.shape[:2]
    top, left = int(np.floor(y - 0.5)), int(np.floor(x - 0.5))
    total = np.zeros(3)
    for row, row_weight in ((top, top + 1.5 - y), (top + 1, y - 0.5 - top)):
        for column, column_weight in ((left, left + 1.5 - x), (left + 1, x - 0.5 - left)):
            total += row_weight * column_weight * image[min(max(row, 0), height - 1), min(max(column, 0), width - 1)]
    return total


def slowly(image: np.ndarray, box: Sequence[float], flip: bool, out: tuple[int, int], canvas: Any) -> np.ndarray:
    """Pixel by pixel: the mean of four points about the middle of what an output pixel covers of the source."""
    x0, y0, x1, y1 = box
    y_scale, x_scale = (y1 - y0) / out[0], (x1 - x0) / out[1]
    y_apart, x_apart = (min((max(0, scale**2 - 1) / 6) ** 0.5, scale / 4) for scale in (y_scale, x_scale))
    result = np.zeros((*canvas, 3))
    for row in range(out[0]):
        for column in range(out[1]):
            place = out[1] - 1 - column if flip else column
            y, x = y0 + (row + 0.5) * y_scale, x0 + (place + 0.5) * x_scale
            points = [bilinear(image, y + a * y_apart, x + b * x_apart) for a in (-1, 1) for b in (-1, 1)]
            result[row, column] = np.mean(points, axis=0)
    return result.transpose(2, 0, 1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[np.ndarray], list, list, list, tuple[int, int], bool]:
    canvas = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    images, crops, flips, out_sizes = [], [], [], []
    for _ in range(draw(st.integers(1, 6))):
        height, width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
        seed = draw(st.integers(0, 9))
        images.append(np.random.RandomState(seed).randint(0, 256, (height, width, 3), dtype=np.uint8))
        ends = [sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1)))) for _ in range(2)]
        (x0, x1), (y0, y1) = ends
        crops.append([x0 * width, y0 * height, x1 * width, y1 * height])
        flips.append(draw(st.booleans()))
        out_sizes.append([draw(st.integers(1, canvas[0])), draw(st.integers(1, canvas[1]))])
    return images, crops, flips, out_sizes, canvas, draw(st.booleans())


@given(cases())
@settings(max_examples=40, deadline=None)
def test_is_what_a_plain_computation_gives(case: Any) -> None:
    images, crops, flips, out_sizes, canvas, _ = case
    output = cut(*case).numpy()
    for index, image in enumerate(images):
        box = np.float32(crops[index]).astype(float)
        expected = slowly(image, box, flips[index], out_sizes[index], canvas)
        # Half a level for rounding; and float32 places have 20 bits left behind the point or so.
        assert np.abs(output[index] - expected).max() < 0.51
        assert not output[index][:, out_sizes[index][0] :].any()
        assert not output[index][:, :, out_sizes[index][1] :].any()


@pytest.mark.parametrize("interleaved", [False, True])
def test_rectangles_of_whole_pixels_are_cut_exactly(interleaved: bool) -> None:
    image = np.random.RandomState(1).randint(0, 256, (6, 8, 3), dtype=np.uint8)

    def crop_of(box: list[float], out: list[int], flip: bool = False) -> np.ndarray:
        output = cut([image], [box], [flip], [out], (8, 8), interleaved)[0]
        return output[:, : out[0], : out[1]].permute(1, 2, 0).numpy()

    flat = np.full_like(image, 77)
    assert np.all(cut([flat], [[0, 0, 8, 6]], [False], [[6, 8]], (6, 8), interleaved).numpy() == 77)
    assert np.array_equal(crop_of([0, 0, 8, 6], [6, 8]), image), "as large as it is"
    assert np.array_equal(crop_of([0, 0, 8, 6], [6, 8], flip=True), image[:, ::-1])
    # Shrunk to a half, every output pixel is the mean of 2x2 pixels, at its very centres.
    halves = image.reshape(3, 2, 4, 2, 3).mean(axis=(1, 3))
    assert np.array_equal(crop_of([0, 0, 8, 6], [3, 4]), np.floor(halves + 0.5))
    assert np.array_equal(crop_of([0, 0, 8, 6], [3, 4], flip=True), np.floor(halves + 0.5)[:, ::-1])
    assert np.array_equal(crop_of([2, 2, 6, 6], [2, 2]), np.floor(halves + 0.5)[1:3, 1:3])


def test_agrees_with_pillow_where_it_enlarges() -> None:
    image = picture(40, 60)
    output = cut([image], [[5, 7, 45, 37]], [False], [[60, 80]], (60, 80))[0].permute(1, 2, 0).numpy()
    expected = np.asarray(Image.fromarray(image).resize((80, 60), Image.Resampling.BILINEAR, box=(5, 7, 45, 37)))
    # Pillow repeats the rectangle's border rather than the image's.
    assert np.abs(output.astype(int) - expected)[1:-1, 1:-1].max() <= 1


@pytest.mark.parametrize(("shrunk", "error"), [(1.1, 0.1), (1.3, 0.12), (1.6, 0.24)])
def test_is_close_to_pillow_where_it_shrinks(shrunk: float, error: float) -> None:
    image = np.random.RandomState(1).randint(0, 256, (60, 80, 3), dtype=np.uint8)  # noise: every blur shows
    height, width = round(60 / shrunk), round(80 / shrunk)
    output = cut([image], [[0, 0, 80, 60]], [False], [[height, width]], (height, width))[0].permute(1, 2, 0).numpy()
    expected = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    off = (output.astype(float) - expected)[2:-2, 2:-2]
    assert off.std() < error * expected.std()


def test_enlarges_as_torchvision_s_detectors_do() -> None:
    image = picture(40, 60)
    output = cut([image], [[0, 0, 60, 40]], [False], [[53, 80]], (53, 80))[0].float()
    pixels = torch.tensor(image).permute(2, 0, 1)[None].float()
    expected = F.interpolate(pixels, size=(53, 80), mode="bilinear", align_corners=False)[0]
    assert (output - expected).abs().max() < 0.51


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [picture(10 + index, 20, index) for index in range(5)]
    arguments = (images, [[1, 2, 15, 9]] * 5, [False, True] * 2 + [True], [[7, 7]] * 5, (8, 8))
    expected = cut(*arguments)
    monkeypatch.setattr(crop, "CPU_CHUNK", 2)
    assert torch.equal(cut(*arguments), expected)


@pytest.mark.slow
def test_the_kernel_for_gpus_gives_the_same() -> None:
    expected = crop_resize(*triton_on_cpu.cuts())
    output = triton_on_cpu.results()["cut"]
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert expected.float().std() > 30
    assert (output.int() - expected.int()).abs().max() <= 1  # sums in another order round otherwise


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["pixels", "planes"])
def test_the_kernel_for_gpus_finds_the_last_corner_of_an_image_of_more_than_2_gib(layout: str) -> None:
    tensors = triton_on_cpu.results()
    assert torch.equal(tensors[f"far_{layout}"], tensors["far_corner"])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("interleaved", [False, True])
def test_the_gpu_gives_the_same(interleaved: bool) -> None:
    for seed in range(3):
        rng = np.random.RandomState(seed)
        images = [picture(*rng.randint(20, 90, 2), seed) for _ in range(16)]
        sizes = np.array([image.shape[:2] for image in images])
        ends = np.sort(rng.random_sample((2, 16, 2)), axis=0) * sizes[:, ::-1]
        arguments = (images, np.hstack(ends).tolist(), rng.rand(16) < 0.5, rng.randint(1, 33, (16, 2)), (32, 32))
        output = cut(*arguments, interleaved=interleaved, device=torch.device("cuda"))
        expected = cut(*arguments, interleaved=interleaved)
        assert (output.cpu().int() - expected.int()).abs().max() <= 1  # sums in another order round otherwise
