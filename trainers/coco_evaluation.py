"""Average precision of detections by COCO's protocol (https://cocodataset.org/#detection-eval), over all processes."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch.distributed as dist
from faster_coco_eval import COCO, COCOeval_faster

from trainers.data.coco import CocoIndex
from trainers.data.outlines import MIN_POINTS

IouType = Literal["bbox", "segm"]

PREFIX: dict[IouType, str] = {"bbox": "box", "segm": "mask"}
MAX_DETECTIONS = 100  # an image and class, the protocol's most
EVERY_AREA = [0.0, 1e10]  # pixels²


class DetectionEvaluator:
    """Collects the detections of this process's images and evaluates them together with those of all others.

    Annotations are read at the first `compute`, as they are in the file: the protocol also counts objects that are
    not to be learnt from.
    """

    def __init__(self, index: CocoIndex, iou_types: Sequence[IouType] = ("bbox",)) -> None:
        assert set(iou_types) <= set(PREFIX), iou_types
        self.index, self.iou_types = index, tuple(iou_types)
        self._images: list[np.ndarray] = []
        self._boxes: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._masks: list[bytes] = []
        self._annotations: COCO | None = None

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
        A collective call: each kind of IoU is evaluated by one process, by another one where there are two.
        """
        world_size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        rank = dist.get_rank() if world_size > 1 else 0
        own = self._take()
        tasks: dict[IouType, list[dict[str, Any]]] = {}
        for turn, iou_type in enumerate(self.iou_types):
            needed = {
                key: own[key] for key in ("images", "scores", "labels", "boxes" if iou_type == "bbox" else "masks")
            }
            gathered = _gather(needed, turn % world_size, rank, world_size)
            if gathered is not None:
                tasks[iou_type] = gathered
        metrics: dict[str, float] = {}
        for iou_type, parts in tasks.items():
            metrics |= self._evaluate(iou_type, parts)
        if world_size == 1:
            return metrics
        results: list[dict[str, float]] = [{}] * world_size
        dist.all_gather_object(results, metrics)
        merged = {name: value for result in results for name, value in result.items()}
        return {name: merged[name] for iou_type in self.iou_types for name in _names(iou_type)}

    def _take(self) -> dict[str, Any]:
        own = {
            "images": np.concatenate([np.zeros(0, np.int64), *self._images]),
            "boxes": np.concatenate([np.zeros((0, 4)), *self._boxes]),
            "scores": np.concatenate([np.zeros(0), *self._scores]),
            "labels": np.concatenate([np.zeros(0, np.int64), *self._labels]),
            "masks": self._masks,
        }
        self._images, self._boxes, self._scores, self._labels, self._masks = [], [], [], [], []
        return own

    def _evaluate(self, iou_type: IouType, parts: list[dict[str, Any]]) -> dict[str, float]:
        joined = {
            key: [mask for part in parts for mask in part[key]]
            if key == "masks"
            else np.concatenate([part[key] for part in parts])
            for key in parts[0]
        }
        if not len(joined["images"]):
            return dict.fromkeys(_names(iou_type), 0.0)
        with _without_collector():
            if self._annotations is None:
                self._annotations = _read(self.index)
            detections = _as_coco(self._annotations, self.index, joined)
            evaluation = COCOeval_faster(self._annotations, detections, iou_type, print_function=_silent)
            # The other areas and numbers of detections have no part in what is reported.
            evaluation.params.areaRng, evaluation.params.areaRngLbl = [EVERY_AREA], ["all"]
            evaluation.params.maxDets = [MAX_DETECTIONS]
            evaluation.evaluate()
            evaluation.accumulate()
        precision = evaluation.eval["precision"][:, :, :, 0, 0]  # [IoUs, recalls, classes]; -1 for unknown classes
        values = precision[precision > -1], precision[0][precision[0] > -1]
        return {
            name: float(value.mean()) if value.size else 0.0
            for name, value in zip(_names(iou_type), values, strict=True)
        }


def _names(iou_type: IouType) -> tuple[str, str]:
    return f"{PREFIX[iou_type]}_map", f"{PREFIX[iou_type]}_map_50"


def _silent(*_: object) -> None:
    pass


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


def _gather(own: dict[str, Any], to: int, rank: int, world_size: int) -> list[dict[str, Any]] | None:
    """What every process has, in their order, on process `to`, and None on the others."""
    if world_size == 1:
        return [own]
    gathered: list[Any] | None = [None] * world_size if rank == to else None
    dist.gather_object(own, gathered, dst=to)
    return gathered


def _read(index: CocoIndex) -> COCO:
    """The annotations, in what the library takes."""
    content = json.loads(index.annotations.read_bytes())
    sizes = dict(zip(index.image_ids.tolist(), index.sizes.tolist(), strict=True))
    for number, annotation in enumerate(content["annotations"], start=1):
        annotation["id"] = number  # the file's may be missing or the same twice, and 0 would count as unmatched
        annotation["segmentation"] = _region(annotation.get("segmentation"), *sizes[annotation["image_id"]])
    return COCO({key: content[key] for key in ("images", "annotations", "categories")}, print_function=_silent)


def _region(segmentation: Any, height: int, width: int) -> Any:
    """As `trainers.data.outlines` reads it; a region of no pixels where there is none, which the library refuses."""
    if isinstance(segmentation, list):
        segmentation = [part for part in segmentation if len(part) >= 2 * MIN_POINTS and len(part) % 2 == 0]
    return segmentation or {"size": [height, width], "counts": [height * width]}


def _as_coco(annotations: COCO, index: CocoIndex, joined: dict[str, Any]) -> COCO:
    """The detections, in what the library takes."""
    # By image and score: the order, and with it what comes first of equal scores, is that of a single process.
    order = np.lexsort((-joined["scores"], joined["images"]))
    images, labels = joined["images"][order], joined["labels"][order]
    columns: dict[str, list[Any]] = {
        "image_id": index.image_ids[images].tolist(),
        "category_id": np.array(index.class_ids)[labels - 1].tolist(),
        "score": joined["scores"][order].tolist(),
    }
    if "boxes" in joined:
        boxes = joined["boxes"][order]
        boxes[:, 2:] -= boxes[:, :2]
        columns["bbox"] = boxes.tolist()
    else:
        sizes = index.sizes[images].tolist()
        masks = (joined["masks"][at] for at in order.tolist())
        columns["segmentation"] = [{"size": s, "counts": mask} for s, mask in zip(sizes, masks, strict=True)]
    columns["id"] = list(range(1, len(order) + 1))
    columns["area"] = [0.0] * len(order)  # only ranges of areas would look at it
    dicts = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return COCO({**annotations.dataset, "annotations": dicts}, print_function=_silent)
