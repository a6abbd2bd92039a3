"""Whole images on few canvases, resized as torchvision's detectors do it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from trainers.data.detection.view import STRIDE, ShortEdge

SIDES = st.integers(1, 2000)
EDGES = st.tuples(st.integers(32, 900), st.integers(32, 1400)).map(lambda sides: (min(sides), max(sides)))


@given(EDGES, st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=20))
def test_images_are_as_large_as_the_edges_allow(edges: tuple[int, int], sides: list[tuple[int, int]]) -> None:
    min_size, max_size = edges
    view, sizes = ShortEdge(min_size, max_size), np.array(sides)
    for (height, width), canvas in zip(sides, view.canvas_of(sizes), strict=True):
        cut = view.evaluate(np.array([[height, width]]), view.canvases[canvas])
        out = cut.out_sizes[0]
        assert cut.crops.tolist() == [[0, 0, width, height]]
        assert not cut.flips.any()
        assert (out >= 1).all()
        assert (out <= view.canvases[canvas]).all()
        scale = min(min_size / min(height, width), max_size / max(height, width))
        assert (abs(out - np.array((height, width)) * scale) < 1).all()  # keeps the ratio of its sides
        if scale == min_size / min(height, width):
            assert out.min() == min_size
        else:
            assert out.max() == max_size


@given(EDGES)
def test_canvases_are_few_and_fit_the_pyramid(edges: tuple[int, int]) -> None:
    view = ShortEdge(*edges)
    assert len(set(view.canvases)) == len(view.canvases) <= 4
    for canvas in view.canvases:
        assert not canvas[0] % STRIDE
        assert not canvas[1] % STRIDE
        assert min(canvas) < edges[0] + STRIDE
        assert max(canvas) < edges[1] + STRIDE


def test_each_image_gets_the_smallest_canvas_that_it_fits() -> None:
    view = ShortEdge(800, 1333)
    assert STRIDE == 32
    assert view.canvases == ((800, 1088), (800, 1344), (1088, 800), (1344, 800))
    sizes = np.array([(480, 640), (640, 480), (427, 640), (640, 427), (500, 500), (333, 1000), (1000, 100), (480, 652)])
    assert view.canvas_of(sizes).tolist() == [0, 2, 1, 3, 0, 1, 3, 0]


def test_sizes_are_torchvisions() -> None:
    sizes = np.array([(48, 64), (64, 48), (42, 64), (50, 50), (33, 100), (100, 10), (37, 61), (300, 200)])
    resize = GeneralizedRCNNTransform(80, 133, [0.0] * 3, [1.0] * 3).resize
    expected = [list(resize(torch.zeros(3, *size))[0].shape[1:]) for size in sizes.tolist()]
    view = ShortEdge(80, 133)
    assert view.evaluate(sizes, view.canvases[0]).out_sizes.tolist() == expected


def test_half_of_the_training_images_are_flipped() -> None:
    view, sizes = ShortEdge(64, 96), np.tile(np.array([(20, 30)]), (1000, 1))
    cut = view.train(np.random.RandomState(0), sizes, np.zeros((1000, 1, 4)), np.zeros((1000, 1)), view.canvases[0])
    plain = view.evaluate(sizes, view.canvases[0])
    assert cut.flips.mean() == pytest.approx(0.5, abs=0.05)
    assert np.array_equal(cut.crops, plain.crops)
    assert np.array_equal(cut.out_sizes, plain.out_sizes)
    dtypes = (np.dtype(np.float32), np.dtype(np.int64), np.dtype(bool))
    assert tuple(array.dtype for array in cut) == tuple(array.dtype for array in plain) == dtypes
