"""The objects of detection batches: there is room for all, and they follow the cut and the flip of their image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainers import jpegs
from tests.trainers.detection_folders import CROWD, LABELS, LYING, SOME, Picture, Thing, describe, small
from tests.trainers.processes import ALONE
from trainers.data.detection.batch import EDGES_STEP
from trainers.data.detection.view import Cut
from trainers.models.maskrcnn.masks import rasterise

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize(("num", "room"), [(1, 8), (8, 8), (9, 16)])
def test_there_is_room_for_the_fullest_image_s_objects(tmp_path: Path, num: int, room: int) -> None:
    things = [Thing((x, 2, x + 5, 9)) for x in range(num)]
    describe(tmp_path, "train2017", [Picture(LYING, SOME[:1]), Picture(LYING, [CROWD, *things]), Picture(LYING)])
    describe(tmp_path, "val2017", [Picture(LYING, SOME)])
    assert small(tmp_path).num_objects == room


class Fixed:
    """Shows x 3 to 27 and y 2 to 18, twice as large, on a wider canvas."""

    canvases = ((32, 64),)
    outlines = True

    def __init__(self, flip: bool, drop_outside: bool) -> None:
        self.flip, self.drop_outside = flip, drop_outside

    def canvas_of(self, sizes: np.ndarray) -> np.ndarray:
        return np.zeros(len(sizes), np.int64)

    def train(self, rng: np.random.RandomState, sizes: np.ndarray, *rest: Any) -> Cut:
        crops = np.tile(np.array((3, 2, 27, 18), np.float32), (len(sizes), 1))
        return Cut(crops, np.tile(np.array((32, 48)), (len(sizes), 1)), np.full(len(sizes), self.flip))


THINGS = [  # the box in the image, where it is on the canvas, what is shown of that, the same flipped
    (Thing((6, 4, 18, 14)), (6, 4, 30, 24), (6, 4, 30, 24), (18, 4, 42, 24)),
    (Thing((20, 10, 30, 20), category=9), (34, 16, 54, 36), (34, 16, 48, 32), (0, 16, 14, 32)),
    (Thing((28, 0, 30, 2)), (50, -4, 54, 0), None, None),  # not shown at all
    (Thing((0, 0, 5, 3), category=9), (-6, -4, 4, 2), (0, 0, 4, 2), (44, 0, 48, 2)),  # its centre is not shown
]


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One image, whose first object is white."""
    root = tmp_path_factory.mktemp("pictured")
    things = [thing for thing, *_ in THINGS]
    describe(root, "train2017", [Picture(LYING, things)])
    describe(root, "val2017", [Picture(LYING, things)])
    image = np.zeros((*LYING, 3), np.uint8)
    image[4:14, 6:18] = 255
    jpegs.write(root / "train2017" / "0.jpg", image)
    return root


@pytest.mark.parametrize("drop_outside", [False, True])
@pytest.mark.parametrize("flip", [False, True])
def test_objects_follow_the_cut_and_the_flip(pictured: Path, flip: bool, drop_outside: bool) -> None:
    data = small(pictured, Fixed(flip, drop_outside))
    (batch,) = data.train_loader(2, 0, ALONE)  # the second is filler
    shown = [flipped if flip else upright for *_, upright, flipped in THINGS]
    if drop_outside:
        shown[3] = None
    labels = [LABELS[thing.category] if box else 0 for (thing, *_), box in zip(THINGS, shown, strict=True)]
    for image in range(2):
        assert batch["labels"][image].tolist() == labels + [0] * (data.num_objects - 4)
        assert batch["boxes"][image, :4].tolist() == [list(map(float, box or (0, 0, 0, 0))) for box in shown]
        assert not batch["boxes"][image, 4:].any()
    assert batch["sizes"].tolist() == [[32, 48]] * 2
    assert batch["crops"].tolist() == [[3, 2, 27, 18]] * 2
    assert batch["image_index"].tolist() == [0, -1]
    for image in batch["images"].float():
        x0, y0, x1, y1 = shown[0]
        assert image[:, y0 + 3 : y1 - 3, x0 + 3 : x1 - 3].min() > 225
        image[:, y0 - 3 : y1 + 3, x0 - 3 : x1 + 3] = 0
        assert image.max() < 30


@pytest.mark.parametrize("flip", [False, True])
def test_outlines_fill_what_is_shown_of_their_boxes(pictured: Path, flip: bool) -> None:
    data = small(pictured, Fixed(flip, drop_outside=True))
    (batch,) = data.train_loader(2, 0, ALONE)
    edges, owner, room = batch["edges"], batch["owner"], data.num_objects
    assert edges.shape == (EDGES_STEP, 4)
    assert torch.bincount(owner).nonzero()[:, 0].tolist() == [0, 1, room, room + 1, 2 * room]
    assert not edges[owner == 2 * room].any()
    grids = rasterise(edges, owner, batch["boxes"].flatten(0, 1), 8).view(2, room, 8, 8)
    assert not grids[:, 2:].any()
    for number, (_, place, *_) in enumerate(THINGS[:2]):
        for image in range(2):
            x0, y0, x1, y1 = batch["boxes"][image, number].tolist()
            middle = (torch.arange(8) + 0.5) / 8
            x, y = x0 + middle * (x1 - x0), y0 + middle * (y1 - y0)
            x = 48 - x if flip else x
            u, v = (x - place[0]) / (place[2] - place[0]), (y - place[1]) / (place[3] - place[1])
            inside = u < 1 - 0.7 * v[:, None]
            assert 0 < inside.sum() < 64
            assert torch.equal(grids[image, number] > 0, inside)
