"""Small data sets for detection, drawn and annotated from a list of pictures, and what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.trainers import coco_files, jpegs
from trainers.data.detection.data import CocoData, coco
from trainers.data.detection.view import ShortEdge, View

LYING, STANDING = (20, 30), (30, 20)
LABELS = {2: 1, 9: 2}  # the categories'
GREY_STEP = 12  # between images; JPEG keeps a single grey exactly


class Thing(NamedTuple):
    """Fills its box but for what is below a line from the upper right to the lower end, three tenths from the left."""

    box: tuple[float, float, float, float]  # x0 y0 x1 y1
    category: int = 2
    crowd: bool = False

    def outline(self) -> list[float]:
        x0, y0, x1, y1 = self.box
        return [x0, y0, x1, y0, x0 + 0.3 * (x1 - x0), y1, x0, y1]


class Picture(NamedTuple):
    size: tuple[int, int]  # height, width
    things: Sequence[Thing] = ()


CROWD = Thing((1, 1, 9, 9), category=9, crowd=True)
SOME = [Thing((2, 3, 12, 13)), Thing((5.5, 1, 18, 8.25), category=9)]


def describe(root: Path, name: str, pictures: Sequence[Picture], categories: Sequence[int] = (9, 2)) -> None:
    """Annotations, and empty files for the images."""
    annotations: list[dict[str, Any]] = []
    for image, picture in enumerate(pictures):
        for thing in picture.things:
            x0, y0, x1, y1 = thing.box
            rle = {"size": picture.size, "counts": [0, picture.size[0] * picture.size[1]]}
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": thing.category,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": 1.0,
                    "iscrowd": int(thing.crowd),
                    "segmentation": rle if thing.crowd else [thing.outline()],
                }
            )
    images = [
        {"id": image, "file_name": f"{image}.jpg", "height": picture.size[0], "width": picture.size[1]}
        for image, picture in enumerate(pictures)
    ]
    kinds = [{"id": category, "name": str(category)} for category in categories]
    coco_files.write(root, {"images": images, "annotations": annotations, "categories": kinds}, name)


def draw(root: Path, name: str, pictures: Sequence[Picture]) -> None:
    """Image i is of one colour, grey i * GREY_STEP."""
    for image, picture in enumerate(pictures):
        jpegs.write(root / name / f"{image}.jpg", np.full((*picture.size, 3), image * GREY_STEP, np.uint8))


def small(root: Path, view: View | None = None) -> CocoData:
    return coco(str(root), num_threads=1).viewed(view or ShortEdge(32, 64))
