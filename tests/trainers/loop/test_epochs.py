"""An epoch's batches follow from seed and epoch alone: a run that continues sees what it would have seen uninterrupted.

Shown for every class of datasets that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainers import coco_files, jpegs
from tests.trainers.processes import CPU
from trainers.data import detection, image_folder, synthetic_images
from trainers.data.crop import SquareView
from trainers.data.detection.synthetic import SyntheticDetection
from trainers.data.detection.view import ShortEdge
from trainers.data.digits import digits
from trainers.data.loading.types import Shard
from trainers.models.ssd.default_boxes import SsdView


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMETRIAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def images_in_folders(root: Path) -> Any:
    for part in ("train", "val"):
        for number in range(11):
            jpegs.write(root / part / "ab"[number % 2] / f"{number}.jpg", jpegs.picture(40, 50, number))
    return image_folder.imagenet(str(root), num_threads=1).viewed(SquareView(16, 20))


def objects(root: Path, view: Any) -> Any:
    content = coco_files.random_content(np.random.default_rng(0), 12, 3)
    for name in ("train2017", "val2017"):
        coco_files.write(root, content, name)
        for image in content["images"]:
            jpegs.write(root / name / image["file_name"], jpegs.picture(image["height"], image["width"], image["id"]))
    return detection.coco(str(root), num_threads=1).viewed(view)


def generated_objects(root: Path) -> Any:
    return SyntheticDetection(size=12).viewed(ShortEdge(32, 64))


KINDS: dict[str, Callable[[Path], Any]] = {
    "in memory": lambda root: digits(),
    "images in folders": images_in_folders,
    "objects, scaled": lambda root: objects(root, ShortEdge(32, 64)),
    "objects, cropped": lambda root: objects(root, SsdView()),
    "generated images": lambda root: synthetic_images.synthetic(12),
    "generated objects": generated_objects,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (1, 2)])
def test_an_epoch_is_the_same_whatever_was_before_it(tmp_path: Path, kind: str, rank: int, world_size: int) -> None:
    data = KINDS[kind](tmp_path)
    went_through = data.train_loader(2, 5, Shard(rank, world_size, CPU))
    for epoch in (0, 1):
        went_through.set_epoch(epoch)
        batches = iter(went_through)
        next(batches)  # It takes no more of them: limit_train_batches.
        del batches
    went_through.set_epoch(2)
    expected = list(went_through)

    starts_here = KINDS[kind](tmp_path).train_loader(2, 5, Shard(rank, world_size, CPU))
    batches = iter(starts_here)  # Lightning asks for an iterator first
    starts_here.set_epoch(2)
    own = list(batches)
    assert len(own) == len(expected) == len(starts_here)
    for batch, other in zip(own, expected, strict=True):
        assert batch.keys() == other.keys()
        for name, value in batch.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[name])), name


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "generated" not in kind])
def test_and_another_epoch_is_another(tmp_path: Path, kind: str) -> None:
    """So that the test above could fail."""
    loader = KINDS[kind](tmp_path).train_loader(2, 5, Shard(0, 1, CPU))
    first, second = list(loader), (loader.set_epoch(1), list(loader))[1]
    assert any(not torch.equal(batch["images"], other["images"]) for batch, other in zip(first, second, strict=True))
