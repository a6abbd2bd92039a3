"""The version of a run's data: equal for equal data, different for different data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainers import coco_files
from tests.trainers.jpegs import picture, write
from trainers.data.coco.index import load_index
from trainers.data.detection.data import CocoData
from trainers.data.image_folder import imagenet
from trainers.data.images import ImageData
from trainers.data.jpeg import SharedReader
from trainers.data.loading.version import MANIFEST, digest


def test_a_digest_follows_from_values_kinds_shapes_and_order() -> None:
    x, y = np.arange(6, dtype=np.int32), np.arange(6, dtype=np.int32) + 1
    digests = {
        digest(parts)
        for parts in (
            [x], [y], [x, y], [y, x], [x.astype(np.int64)], [x.reshape(2, 3)], [["a", "b"]], [["ab"]],
        )
    }  # fmt: skip
    assert len(digests) == 8
    assert digest([x.copy()]) == digest([x])


def folder(root: Path) -> Path:
    for part in ("train", "val"):
        for name in ("ant", "bee"):
            (root / part / name).mkdir(parents=True)
            write(root / part / name / "0.JPEG", picture(8, 8))
    return root


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "train/ant/0.JPEG").rename(root / "train/ant/1.JPEG"),
        lambda root: (root / "train/ant/0.JPEG").rename(root / "train/bee/1.JPEG") and write_again(root),
        lambda root: write(root / "val/bee/1.JPEG", picture(8, 8)),
        lambda root: (root / MANIFEST).write_text("{}"),
    ],
    ids=["name", "label", "more", "manifest"],
)
def test_of_image_folders(tmp_path: Path, change: Callable[[Path], Any]) -> None:
    root = folder(tmp_path)
    before = imagenet(str(root)).version()
    assert imagenet(str(root)).version() == before
    change(root)
    assert imagenet(str(root)).version() != before


def write_again(root: Path) -> None:
    write(root / "train/ant/9.JPEG", picture(8, 8))


@pytest.mark.parametrize("change", ["image", "label", "none"])
def test_of_images_in_memory_only_what_is_trained_and_evaluated_on_counts(change: str) -> None:
    versions = []
    for spoilt in (False, True):
        images, labels = np.zeros((8, 4, 4), np.uint8), np.arange(8)
        images[0, 0, 0] += spoilt and change == "image"
        labels[0] = 9 if spoilt and change == "label" else 0
        test = np.full((2, 4, 4), spoilt, np.uint8), np.zeros(2, np.int64)
        data = ImageData(
            "numbered", 10, (4, 4), tuple("0123456789"), 6, 2, 2,
            lambda source, train=(images, labels), test=test: test if source == "test" else train,
        )  # fmt: skip
        for part in ("train", "test"):
            data.samples(part, torch.device("cpu"))
        versions.append(data.version())
    assert (versions[0] == versions[1]) == (change == "none")


@pytest.mark.parametrize("change", ["box", "category", "none"])
def test_of_detection_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    versions = []
    for name in ("before", "after"):
        content = coco_files.content()
        objects = content["annotations"]
        if name == "after" and change == "box":
            objects[0]["bbox"][2] -= 1
        elif name == "after" and change == "category":
            objects[0]["category_id"] = next(
                category["id"] for category in content["categories"] if category["id"] != objects[0]["category_id"]
            )
        root = tmp_path / name
        root.mkdir()
        for split in ("train2017", "val2017"):
            coco_files.write(root, content, split)
        data = CocoData("coco", *(load_index(str(root), part) for part in ("train", "val")), SharedReader())
        versions.append(data.version())
    assert (versions[0] == versions[1]) == (change == "none")
