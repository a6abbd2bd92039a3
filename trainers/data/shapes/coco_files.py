"""Writes the objects of drawn scenes in COCO's format: https://cocodataset.org/#format-data."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from trainers.data.shapes.rasterizing import CLASS_NAMES
from trainers.data.shapes.scenes import Scene

CATEGORY_IDS = (1, 2, 3, 5, 8, 10, 11, 13, 17, 18)  # one for each of CLASS_NAMES, with gaps as in COCO
ROUND = ("crescent", "disc", "wedge")


def annotate(scene: Scene) -> list[dict[str, Any]]:
    """Return COCO's annotations of a scene, without ids. `area` and `bbox` are those of the visible pixels."""
    annotations = []
    for number, thing in enumerate(scene.things, start=1):
        mask = scene.visible(number)
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        x, y, right, bottom = int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
        polygons = [] if thing.is_crowd else [polygon.ravel().tolist() for polygon in scene.polygons(number)]
        annotations.append(
            {
                "segmentation": run_lengths(mask) if thing.is_crowd else polygons,
                "area": int(mask.sum()),
                "iscrowd": int(thing.is_crowd),
                "bbox": [x, y, right - x, bottom - y],
                "category_id": CATEGORY_IDS[thing.shape],
            }
        )
    return annotations


def run_lengths(mask: np.ndarray) -> dict[str, list[int]]:
    """Return COCO's uncompressed mask of bool [height, width]: lengths of the runs of 0, 1, 0, ... along columns."""
    column_wise = np.concatenate([[False], mask.T.ravel()])
    changes = np.flatnonzero(np.diff(column_wise))
    return {"counts": np.diff([0, *changes, mask.size]).tolist(), "size": list(mask.shape)}


def coco_file(drawn: list[dict[str, Any]], version: int) -> str:
    """Return the content of a split's file. `drawn` has index, file, size (height, width) and annotations by image."""
    images: list[dict[str, Any]] = []
    numbered: list[dict[str, Any]] = []
    for record in drawn:
        image_id, (height, width) = record["index"] + 1, record["size"]
        images.append(
            {"license": 1, "file_name": record["file"], "coco_url": "", "height": height, "width": width}
            | {"date_captured": "2026-01-01 00:00:00", "flickr_url": "", "id": image_id}
        )
        for annotation in record["annotations"]:
            numbered.append(annotation | {"image_id": image_id, "id": len(numbered) + 1})
    categories = [
        {"supercategory": "round" if name in ROUND else "angular", "id": category_id, "name": name}
        for category_id, name in zip(CATEGORY_IDS, CLASS_NAMES, strict=True)
    ]
    content = {
        "info": {"description": "Drawn shapes", "url": "", "version": str(version), "year": 2026}
        | {"contributor": "timetrial", "date_created": "2026/01/01"},
        "licenses": [{"url": "", "id": 1, "name": "Apache-2.0"}],
        "images": images,
        "annotations": numbered,
        "categories": categories,
    }
    return json.dumps(content, separators=(",", ":"))
