"""SSD300's default boxes, matching and crops, against the same written plainly."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.models.ssd.default_boxes import (
    BOXES_PER_CELL,
    CODING,
    MAP_SIZES,
    SsdView,
    default_boxes,
    match,
    random_crops,
)
from trainers.ops.boxes import decode, encode

DEFAULTS = default_boxes()
CANVAS = (300, 300)


def test_there_are_8732_of_the_papers_sizes() -> None:
    assert sum(size * size * count for size, count in zip(MAP_SIZES, BOXES_PER_CELL, strict=True)) == 8732
    assert DEFAULTS.shape == (8732, 4)
    centre, size = (DEFAULTS[:, :2] + DEFAULTS[:, 2:]) / 2, DEFAULTS[:, 2:] - DEFAULTS[:, :2]
    # By hand. Map 1: cells of 8 pixels; sides 21, sqrt(21 * 45) = 30.741, 21 * sqrt(2) = 29.698, 21 / sqrt(2) = 14.849.
    first = torch.tensor([[21.0, 21.0], [30.741, 30.741], [29.698, 14.849], [14.849, 29.698]])
    torch.testing.assert_close(size[:4], first, rtol=0, atol=1e-3)
    torch.testing.assert_close(centre[:4], torch.full((4, 2), 4.0))
    assert centre[4].tolist() == [12.0, 4.0]  # along the row first
    # Map 2: cells of 16 pixels, also sides 45 * sqrt(3) = 77.942 and 45 / sqrt(3) = 25.981.
    torch.testing.assert_close(size[5776 + 4], torch.tensor([77.942, 25.981]), rtol=0, atol=1e-3)
    assert centre[5776 + 4].tolist() == pytest.approx([8.0, 8.0])
    # Map 6: one cell; 261 * sqrt(2) is more than the image is wide.
    torch.testing.assert_close(
        size[-4:], torch.tensor([[261.0, 261.0], [286.732, 286.732], [300, 184.555], [184.555, 300]]), rtol=0, atol=1e-3
    )
    assert centre[-1].tolist() == [150.0, 150.0]
    assert centre.max() == 300  # The centre of map 3's last cell would be at 304.


corner = st.floats(0, 250, width=32)
side = st.floats(1, 300, width=32)


@settings(max_examples=50, deadline=None)
@given(box=st.tuples(corner, corner, side, side), index=st.integers(0, 8731))
def test_decoding_is_the_inverse_of_encoding(box: tuple[float, ...], index: int) -> None:
    x, y, width, height = box
    own = torch.tensor([[x, y, x + width, y + height]])
    back = decode(encode(own, DEFAULTS[index : index + 1], CODING), DEFAULTS[index : index + 1], CODING)
    torch.testing.assert_close(back, own, rtol=1e-4, atol=1e-2)


def test_the_coding_has_the_variances_of_the_paper() -> None:
    anchor, box = torch.tensor([[0.0, 0.0, 20.0, 10.0]]), torch.tensor([[2.0, 0.0, 42.0, 10.0]])
    expected = [12 / 20 / 0.1, 0.0, math.log(2) / 0.2, 0.0]
    assert encode(box, anchor, CODING)[0].tolist() == pytest.approx(expected, rel=1e-5)


def overlap(first: Any, second: Any) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return float(shared / (sum(areas) - shared))


def matched_plainly(boxes: torch.Tensor, labels: torch.Tensor) -> list[int]:
    """The object of each default box of one image, -1 for none."""
    real = [index for index, label in enumerate(labels.tolist()) if label]
    overlaps = {index: [overlap(boxes[index].tolist(), default) for default in DEFAULTS.tolist()] for index in real}
    answers = [-1] * len(DEFAULTS)
    for default in range(len(DEFAULTS)):
        best = max(real, key=lambda index: overlaps[index][default], default=-1)
        if best >= 0 and overlaps[best][default] > 0.5:
            answers[default] = best
    for index in real:
        answers[int(np.argmax(overlaps[index]))] = index
    return answers


def random_objects(seed: int, num_images: int, room: int, size: float = 300.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes [n, room, 4] and labels [n, room] with padding anywhere, not only at the end."""
    rng = np.random.RandomState(seed)
    sides = rng.uniform(0.05, 0.7, (num_images, room, 2)) * size
    corners = rng.uniform(0, 1, (num_images, room, 2)) * (size - sides)
    labels = rng.randint(0, 4, (num_images, room))
    boxes = np.concatenate((corners, corners + sides), axis=2) * (labels > 0)[..., None]
    return torch.from_numpy(boxes.astype(np.float32)), torch.from_numpy(labels)


def test_matching_is_that_of_the_rule_written_plainly() -> None:
    boxes, labels = random_objects(1, num_images=3, room=4)
    labels[2] = 0
    found_boxes, found_labels = match(DEFAULTS, boxes, labels)
    for image in range(3):
        expected = matched_plainly(boxes[image], labels[image])
        assert (found_labels[image] > 0).tolist() == [index >= 0 for index in expected]
        for default, index in enumerate(expected):
            if index >= 0:
                assert found_labels[image, default] == labels[image, index]
                assert found_boxes[image, default].tolist() == boxes[image, index].tolist()
    assert (found_labels[:2] > 0).any(dim=1).all()
    assert not found_labels[2].any()


def test_of_two_objects_that_want_the_same_default_box_the_later_gets_it() -> None:
    small = torch.tensor([101.0, 101.0, 105.0, 105.0])  # nothing overlaps it by half: one default box for it
    boxes = torch.stack((small, small + 0.1))[None]
    found_boxes, labels = match(DEFAULTS, boxes, torch.tensor([[1, 2]]))
    assert labels.nonzero().shape[0] == 1
    assert labels.max() == 2
    assert found_boxes[labels > 0].tolist() == [boxes[0, 1].tolist()]


def test_an_object_without_area_is_nobodys() -> None:
    boxes = torch.tensor([[[10.0, 10.0, 10.0, 50.0]]])
    assert not match(DEFAULTS, boxes, torch.tensor([[1]]))[1].any()


def scene(num_images: int, room: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, boxes and labels, all in pixels of images of different sizes."""
    sizes = np.random.RandomState(5).randint(100, 700, (num_images, 2))
    boxes, labels = random_objects(6, num_images, room, size=1.0)
    return sizes, boxes.numpy() * sizes[:, None, [1, 0, 1, 0]].astype(np.float32), labels.numpy()


def holds(crop: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    return ((centre > crop[:2]) & (centre < crop[2:])).all(axis=1)


def test_crops_keep_to_the_rules() -> None:
    sizes, boxes, labels = scene(400)
    labels[0] = 0
    crops, out_sizes, flips = SsdView().train(np.random.RandomState(1), sizes, boxes, labels, CANVAS)
    assert (crops.dtype, crops.shape) == (np.float32, (400, 4))
    assert (out_sizes.dtype, np.unique(out_sizes).tolist()) == (np.int64, [300])
    assert (flips.dtype, 140 < flips.sum() < 260) == (np.bool_, True)
    sides = (crops[:, 2:] - crops[:, :2]) / sizes[:, ::-1]
    cut = (sides < 1).any(axis=1)
    assert 100 < cut.sum() < 300
    assert sides.min() >= 0.3 - 1e-5
    assert (sides.max(axis=1) / sides.min(axis=1)).max() <= 2 + 1e-5
    assert crops.min() >= 0
    assert (crops[:, 2:] <= sizes[:, ::-1] * (1 + 1e-6)).all()
    assert not cut[0]  # nothing in it
    for image in np.flatnonzero(cut):
        assert holds(crops[image], boxes[image][labels[image] > 0]).any()
    again = SsdView().train(np.random.RandomState(1), sizes, boxes, labels, CANVAS)
    np.testing.assert_array_equal(again.crops, crops)


def test_a_crop_overlaps_every_object_by_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.models.ssd.default_boxes.CROP_OVERLAPS", np.array([0.3], np.float32))
    sizes, boxes, labels = scene(300, room=2)
    crops = random_crops(np.random.RandomState(1), sizes, boxes, labels)
    cut = np.flatnonzero((crops[:, 2:] < sizes[:, ::-1]).all(axis=1))
    assert len(cut) > 10
    for image in cut:
        assert min(overlap(crops[image], box) for box in boxes[image][labels[image] > 0]) > 0.3 - 1e-5


def crop_plainly(rng: np.random.RandomState, boxes: np.ndarray) -> tuple[float, ...]:
    """One trial after the other, as the reference does it, of an image of 1 by 1."""
    while True:
        minimum = [None, 0.1, 0.3, 0.5, 0.7, 0.9, 0.0][rng.randint(7)]
        if minimum is None:
            return 0.0, 0.0, 1.0, 1.0
        width, height = rng.uniform(0.3, 1.0, 2)
        if not 0.5 <= width / height <= 2:
            continue
        x, y = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
        crop = (x, y, x + width, y + height)
        if minimum and any(overlap(crop, box) <= minimum for box in boxes):
            continue
        if holds(np.array(crop), boxes).any():
            return crop


def test_crops_are_distributed_as_if_tried_one_after_the_other() -> None:
    boxes = np.array([[0.1, 0.2, 0.6, 0.8], [0.3, 0.3, 0.5, 0.6]], np.float32)
    rng = np.random.RandomState(2)
    plain = np.array([crop_plainly(rng, boxes) for _ in range(1500)])
    num = 6000
    ones = np.ones((num, 2), np.int64)
    drawn = random_crops(np.random.RandomState(3), ones, np.tile(boxes, (num, 1, 1)), ones)

    def describe(crops: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        whole = crops[:, 2] - crops[:, 0] == 1
        return whole.mean(), crops[~whole].mean(axis=0), crops[~whole].std(axis=0)

    (whole, mean, spread), (found_whole, found_mean, found_spread) = describe(plain), describe(drawn)
    assert found_whole == pytest.approx(whole, abs=0.05)  # four standard errors of either figure
    np.testing.assert_allclose(found_mean, mean, atol=0.03)
    np.testing.assert_allclose(found_spread, spread, atol=0.03)


def test_evaluation_shows_the_whole_image() -> None:
    sizes = np.array([[480, 640], [333, 500]])
    view = SsdView()
    crops, out_sizes, flips = view.evaluate(sizes, CANVAS)
    assert crops.tolist() == [[0, 0, 640, 480], [0, 0, 500, 333]]
    assert out_sizes.tolist() == [[300, 300], [300, 300]]
    assert not flips.any()
    assert view.canvases == (CANVAS,)
    assert view.canvas_of(sizes).tolist() == [0, 0]
