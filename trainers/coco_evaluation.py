"""Average precision of detections by COCO's protocol (https://cocodataset.org/#detection-eval), over all processes."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch.distributed as dist
from faster_coco_eval import COCO, COCOeval_faster

from trainers.coco_overlaps import MAX_DETECTIONS, IouType, Objects, silent
from trainers.data.coco import CocoIndex

PREFIX: dict[IouType, str] = {"bbox": "box", "segm": "mask"}
EVERY_AREA = [0.0, 1e10]  # pixels²
LISTED = ("images", "scores", "labels")  # of detections, beside their overlaps


class DetectionEvaluator:
    """Collects the detections of this process's images and evaluates them together with those of all others."""

    def __init__(self, index: CocoIndex, iou_types: Sequence[IouType] = ("bbox",)) -> None:
        assert set(iou_types) <= set(PREFIX), iou_types
        self.index, self.iou_types = index, tuple(iou_types)
        self._images: list[np.ndarray] = []
        self._boxes: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._masks: list[bytes] = []
        self._objects = Objects(index)

    def add(
        self,
        image_index: np.ndarray,
        boxes: np.ndarray,
        scores: np.ndarray,
        labels: np.ndarray,
        masks: Sequence[bytes] | None = None,
    ) -> None:
        """Add K detections, in any order; all those of an image by the same process.

        image_index: int64 [K], positions in the dataset's index. boxes: float32 [K, 4] x0 y0 x1 y1 in the image's own
        pixels. scores: float32 [K]. labels: int64 [K], from 1 on. masks: K compressed run lengths of COCO's, for segm.
        """
        assert len(image_index) == len(boxes) == len(scores) == len(labels)
        self._images.append(np.asarray(image_index, np.int64))
        self._boxes.append(np.asarray(boxes, np.float64).reshape(-1, 4))
        self._scores.append(np.asarray(scores, np.float64))
        self._labels.append(np.asarray(labels, np.int64))
        if "segm" in self.iou_types:
            assert masks is not None, "segm needs masks"
            assert len(masks) == len(labels)
            self._masks.extend(masks)

    def compute(self) -> dict[str, float]:
        """The average precision over IoUs of 0.5 to 0.95, and at 0.5, of boxes and masks, on every process; empties.

        `box_map` and `box_map_50` for bbox, `mask_map` and `mask_map_50` for segm; 0 where there are no detections.
        A collective call: every process measures overlaps of its own images, and each kind is then evaluated by one
        process, by another one where there are two.
        """
        world_size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        rank = dist.get_rank() if world_size > 1 else 0
        metrics: dict[str, float] = {}
        with _without_collector():
            found = self._take()
            listed = {key: found[key] for key in LISTED}
            gathered = {
                iou_type: _gather(
                    listed | {"overlaps": self._objects.overlaps(found, iou_type)}, turn, rank, world_size
                )
                for turn, iou_type in enumerate(self.iou_types)
            }
            for iou_type, parts in gathered.items():
                if parts is not None:
                    metrics |= evaluate(iou_type, parts, self._objects)
        if world_size == 1:
            return metrics
        results: list[dict[str, float]] = [{}] * world_size
        dist.all_gather_object(results, metrics)
        merged = {name: value for result in results for name, value in result.items()}
        return {name: merged[name] for iou_type in self.iou_types for name in _names(iou_type)}

    def _take(self) -> dict[str, Any]:
        """What was added, by image, label and falling score."""
        images = np.concatenate([np.zeros(0, np.int64), *self._images])
        scores = np.concatenate([np.zeros(0), *self._scores])
        labels = np.concatenate([np.zeros(0, np.int64), *self._labels])
        boxes = np.concatenate([np.zeros((0, 4)), *self._boxes])
        order = np.lexsort((-scores, labels, images))
        masks = [self._masks[at] for at in order.tolist()] if self._masks else []
        self._images, self._boxes, self._scores, self._labels, self._masks = [], [], [], [], []
        return {
            "images": images[order],
            "scores": scores[order],
            "labels": labels[order],
            "boxes": boxes[order],
            "masks": masks,
        }


class Measured(COCOeval_faster):
    """Evaluates overlaps that are measured already. It takes them for boxes', for which it prepares nothing."""

    def __init__(self, objects: COCO, detections: COCO, overlaps: dict[tuple[int, int], np.ndarray]) -> None:
        super().__init__(objects, detections, "bbox", print_function=silent)
        self._overlaps = overlaps
        # The other areas and numbers of detections have no part in what is reported.
        self.params.areaRng, self.params.areaRngLbl = [EVERY_AREA], ["all"]
        self.params.maxDets = [MAX_DETECTIONS]

    def computeIoU(self, imgId: int, catId: int) -> np.ndarray:
        return self._overlaps[imgId, catId]


def evaluate(iou_type: IouType, parts: list[dict[str, Any]], objects: Objects) -> dict[str, float]:
    """Average precision of what each process found in its images: what is LISTED, and `overlaps`."""
    if not sum(len(part["images"]) for part in parts):
        return dict.fromkeys(_names(iou_type), 0.0)
    overlaps: dict[tuple[int, int], np.ndarray] = {}
    for part in parts:
        start = 0
        for pair in objects.pairs(part["images"], part["labels"]):
            end = start + pair.size()
            overlaps[pair.key] = part["overlaps"][start:end].reshape(-1, len(pair.objects))
            start = end
    joined = {key: np.concatenate([part[key] for part in parts]) for key in LISTED}
    evaluation = Measured(objects.coco, _as_coco(objects, joined), overlaps)
    evaluation.evaluate()
    evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, 0]  # [IoUs, recalls, classes]; -1 for unknown classes
    values = precision[precision > -1], precision[0][precision[0] > -1]
    return {
        name: float(value.mean()) if value.size else 0.0 for name, value in zip(_names(iou_type), values, strict=True)
    }


def _names(iou_type: IouType) -> tuple[str, str]:
    return f"{PREFIX[iou_type]}_map", f"{PREFIX[iou_type]}_map_50"


@contextmanager
def _without_collector() -> Iterator[None]:
    """The collector would go through millions of new dicts again and again, and free none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _gather(own: dict[str, Any], turn: int, rank: int, world_size: int) -> list[dict[str, Any]] | None:
    """What every process has, in their order, on the process whose turn it is, and None on the others."""
    if world_size == 1:
        return [own]
    to = turn % world_size
    gathered: list[Any] | None = [None] * world_size if rank == to else None
    dist.gather_object(own, gathered, dst=to)
    return gathered


def _as_coco(objects: Objects, joined: dict[str, np.ndarray]) -> COCO:
    """The detections, in what the library takes: image by image, whichever process they come from."""
    image_ids, class_ids = objects.ids(joined["images"], joined["labels"])
    columns = zip(image_ids.tolist(), class_ids.tolist(), joined["scores"].tolist(), strict=True)
    dicts = [  # only ranges of areas would look at the area
        {"id": number, "image_id": image, "category_id": label, "score": score, "area": 0.0}
        for number, (image, label, score) in enumerate(columns, start=1)
    ]
    return COCO({**objects.coco.dataset, "annotations": dicts}, print_function=silent)
