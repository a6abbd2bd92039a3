"""What pycocotools, COCO's own code, finds of detections."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from trainers.data.coco.index import CocoIndex


def ellipse(box: np.ndarray, height: int, width: int) -> bytes:
    """A mask's compressed run lengths; a box without area has none of the pixels."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    centre, half = (box[:2] + box[2:]) / 2, np.maximum((box[2:] - box[:2]) / 2, 1e-6)
    inside = ((x - centre[0]) / half[0]) ** 2 + ((y - centre[1]) / half[1]) ** 2 < 1
    return coco_mask.encode(np.asfortranarray(inside.astype(np.uint8)))["counts"]


def by_pycocotools(
    index: CocoIndex, detections: dict[str, Any], iou_type: str, annotations: Path | None = None
) -> tuple[float, float]:
    """Its mean and its value at an IoU of 0.5, of another annotation file where one is given; -1 without objects."""
    results = []
    for k in np.argsort(-detections["scores"], kind="stable"):
        x0, y0, x1, y1 = detections["boxes"][k].astype(np.float64).tolist()
        image = detections["image_index"][k]
        result = {
            "image_id": int(index.image_ids[image]),
            "category_id": index.class_ids[detections["labels"][k] - 1],
            "score": float(detections["scores"][k]),
        }
        if iou_type == "bbox":
            result["bbox"] = [x0, y0, x1 - x0, y1 - y0]
        else:
            result["segmentation"] = {"size": index.sizes[image].tolist(), "counts": detections["masks"][k]}
        results.append(result)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations or index.annotations))
        evaluation = COCOeval(truth, truth.loadRes(results), iou_type)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats[0], evaluation.stats[1]
