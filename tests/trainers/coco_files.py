"""Small datasets in COCO's layout and format, as the tests of what reads them need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Content = dict[str, Any]


def polygon(box: list[float]) -> list[float]:
    x, y, width, height = box
    return [x, y, x + width, y, x + width, y + height, x, y + height]


def content() -> Content:
    """Three images (ids 7, 3, 5) and four objects of two classes (ids 2 and 9); image 5 has a crowd only."""
    boxes = [[2.0, 3.0, 4.0, 5.0], [10.0, 0.0, 5.5, 6.25], [0.0, 0.0, 8.0, 8.0], [1.0, 1.0, 2.0, 2.0]]
    annotations: list[dict[str, Any]] = [
        {"id": 1, "image_id": 7, "category_id": 9, "bbox": boxes[0], "segmentation": [polygon(boxes[0])]},
        {"id": 2, "image_id": 3, "category_id": 2, "bbox": boxes[1], "segmentation": [polygon(boxes[1])]},
        {"id": 3, "image_id": 5, "category_id": 2, "bbox": boxes[2], "iscrowd": 1},
        {"id": 4, "image_id": 7, "category_id": 2, "bbox": boxes[3], "segmentation": [polygon(boxes[3])]},
    ]
    annotations[2]["segmentation"] = {"size": [12, 16], "counts": [0, 100, 92]}
    for annotation in annotations:
        annotation["area"] = annotation["bbox"][2] * annotation["bbox"][3]
        annotation.setdefault("iscrowd", 0)
    images = [{"id": i, "file_name": f"{i:012d}.jpg", "height": 12, "width": 16} for i in (7, 3, 5)]
    return {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 9, "name": "b"}, {"id": 2, "name": "a"}],
    }


def write(root: Path, what: Any, name: str = "train2017") -> str:
    """Write annotations, as JSON unless they are text, and empty files for the images; returns the path."""
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    (root / name).mkdir(exist_ok=True)
    text = what if isinstance(what, str) else json.dumps(what)
    (root / "annotations" / f"instances_{name}.json").write_text(text)
    if isinstance(what, dict):
        for image in what.get("images") or []:
            if isinstance(image, dict) and isinstance(image.get("file_name"), str):
                (root / name / image["file_name"]).touch()
    return str(root)


def random_content(rng: np.random.Generator, num_images: int, num_classes: int) -> Content:
    """Ellipses, some of them crowds as run lengths."""
    images, annotations = [], []
    for image in range(1, num_images + 1):
        height, width = (int(side) for side in rng.integers(60, 120, 2))
        images.append({"id": image * 3, "file_name": f"{image}.jpg", "height": height, "width": width})
        for _ in range(rng.integers(0, 6)):
            extent = rng.uniform(8, 40, 2)
            corner = rng.uniform(0, 1, 2) * ([width, height] - extent)
            angles = np.arange(24) / 24 * 2 * np.pi
            points = corner + extent / 2 * (1 + np.stack([np.cos(angles), np.sin(angles)], axis=1))
            crowd = bool(rng.random() < 0.15)
            before, inside = int(rng.integers(0, 500)), int(rng.integers(50, 2000))
            rle = {"size": [height, width], "counts": [before, inside, height * width - before - inside]}
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image * 3,
                    "iscrowd": int(crowd),
                    "category_id": int(rng.integers(1, num_classes + 1)) * 2,
                    "area": float(extent.prod()),
                    "bbox": [*corner.tolist(), *extent.tolist()],
                    "segmentation": rle if crowd else [points.flatten().tolist()],
                }
            )
    categories = [{"id": 2 * c, "name": f"class {c}"} for c in range(1, num_classes + 1)]
    return {"images": images, "annotations": annotations, "categories": categories}
