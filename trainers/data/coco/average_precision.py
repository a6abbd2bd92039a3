"""Average precision by COCO's protocol (https://cocodataset.org/#detection-eval), over all processes."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch.distributed as dist
from faster_coco_eval import COCOeval_faster

from trainers.data.coco.index import CocoIndex
from trainers.data.coco.overlaps import MAX_DETECTIONS, IouType, Objects, silent

PREFIX: dict[IouType, str] = {"bbox": "box", "segm": "mask"}
EVERY_AREA = [0.0, 1e10]  # pixels²
LISTED = ("images", "scores", "labels", "areas")  # columns of detections that are gathered with their overlaps
MAX_EVALUATORS = 8  # processes that evaluate classes; each needs another gather from all processes
T = TypeVar("T")


class DetectionEvaluator:
    """Collects the detections of this process's images, and evaluates them together with those of all processes."""

    def __init__(self, index: CocoIndex, iou_types: Sequence[IouType] = ("bbox",)) -> None:
        assert set(iou_types) <= set(PREFIX), iou_types
        self.index, self.iou_types = index, tuple(iou_types)
        self._images: list[np.ndarray] = []
        self._boxes: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._masks: list[bytes] = []
        self._objects = Objects(index, masks="segm" in self.iou_types)

    def add(
        self,
        image_index: np.ndarray,
        boxes: np.ndarray,
        scores: np.ndarray,
        labels: np.ndarray,
        masks: Sequence[bytes] | None = None,
    ) -> None:
        """Add K detections, in any order; one process has to add all detections of an image.

        image_index: int64 [K], positions in the dataset's index. boxes: float32 [K, 4] x0 y0 x1 y1 in the image's
        pixels. scores: float32 [K]. labels: int64 [K], from 1 on. masks: K compressed run lengths in COCO's format, for
        segm. Raises FloatingPointError, naming the image, if a box or a score is not finite and cannot be ranked.
        """
        assert len(image_index) == len(boxes) == len(scores) == len(labels)
        self._check_finite(image_index, boxes, scores)
        self._images.append(np.asarray(image_index, np.int64))
        self._boxes.append(np.asarray(boxes, np.float64).reshape(-1, 4))
        self._scores.append(np.asarray(scores, np.float64))
        self._labels.append(np.asarray(labels, np.int64))
        if "segm" in self.iou_types:
            assert masks is not None, "segm needs masks"
            assert len(masks) == len(labels)
            self._masks.extend(masks)

    def _check_finite(self, image_index: np.ndarray, boxes: np.ndarray, scores: np.ndarray) -> None:
        bad = ~(np.isfinite(boxes).all(axis=1) & np.isfinite(scores))
        if bad.any():
            at = int(np.argmax(bad))
            image = int(image_index[at])
            raise FloatingPointError(
                f"{self.index.annotations}: image {self.index.image_ids[image]} ({self.index.file_names[image]}) has a"
                f" detection with the score {scores[at]:g} and the box {boxes[at].tolist()}, expected finite numbers."
                " Most often the learning rate is too high. Next: give a lower model.optimizer.lr; with"
                " precision=fp16, give"
                " precision=bf16, which holds larger numbers"
            )

    def compute(self) -> dict[str, float]:
        """Return the average precision over IoUs of 0.5 to 0.95, and at 0.5, on every process; drop the detections.

        The keys are `box_map` and `box_map_50` for bbox, `mask_map` and `mask_map_50` for segm. Without detections the
        values are 0. Without objects that count the keys are absent: crowds alone can be neither found nor missed.
        A collective call: every process measures overlaps of its images, and then evaluates some of the classes.
        """
        with _without_collector():
            detections = self._take()
            if not any(_from_all(len(detections["images"]))) and not self.index.crowd.all():
                return {name: 0.0 for iou_type in self.iou_types for name in _names(iou_type)}
            results = [self._evaluate(detections, iou_type, turn) for turn, iou_type in enumerate(self.iou_types)]
            metrics: dict[str, float] = {}
            for iou_type, *parts in zip(self.iou_types, *_from_all(results), strict=True):
                joined = {label: values for part in parts for label, values in part.items()}
                precision = np.stack([joined[label] for label in sorted(joined)], axis=2)
                for name, values in zip(_names(iou_type), (precision, precision[0]), strict=True):
                    known = values[values > -1]  # -1 marks classes without objects
                    metrics |= {name: float(known.mean())} if known.size else {}
        return metrics

    def _evaluate(self, detections: dict[str, Any], iou_type: IouType, turn: int) -> dict[int, np.ndarray]:
        """Return the precision of this process's classes by label, each float64 [IoUs, recalls]. A collective call."""
        rank, world_size = _rank_and_world_size()
        num_shares = min(world_size, MAX_EVALUATORS)
        if iou_type == "segm":  # Masks' areas are always in the protocol's range; that of an inverted box may not be.
            detections = detections | {"areas": np.zeros(len(detections["areas"]))}
        parts: list[Any] | None = None
        for share in range(num_shares):
            # `turn` shifts the shares, so that different processes evaluate boxes and masks of the most frequent class.
            part = _chosen(detections, (detections["labels"] + turn) % num_shares == share)
            part = {key: part[key] for key in LISTED} | {"overlaps": self._objects.overlaps(part, iou_type)}
            parts = _gathered_on(share, part) or parts
        if parts is None:
            return {}
        labels = [label for label in range(1, 1 + len(self.index.class_ids)) if (label + turn) % num_shares == rank]
        precision = evaluate(parts, self._objects, labels)
        return dict(zip(labels, np.moveaxis(precision, 2, 0), strict=True))

    def _take(self) -> dict[str, Any]:
        """Return and drop the detections, sorted by image, label and descending score."""
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
            "areas": (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[order],
            "masks": masks,
        }


class OverlapEvaluation(COCOeval_faster):
    """Evaluates measured overlaps. They pass as overlaps of boxes, for which the library prepares nothing."""

    def __init__(
        self, objects: Objects, detections: list[dict[str, Any]], overlaps: dict[tuple[int, int], np.ndarray]
    ) -> None:
        super().__init__(objects.coco, None, "bbox", print_function=silent)
        self._detections, self._overlaps = detections, overlaps
        self.gt_dataset = objects.dataset
        # Other ranges of areas and numbers of detections are not reported.
        self.params.areaRng, self.params.areaRngLbl = [EVERY_AREA], ["all"]
        self.params.maxDets = [MAX_DETECTIONS]

    def _prepare(self) -> None:
        """Replace the library's preparation, which loops over objects and detections many times, by the needed part."""
        for detection in self._detections:
            self.dt_dataset.append_ref(detection["image_id"], detection["category_id"], detection)
        self._nonempty_iou_pairs = set(self._overlaps)

    def computeIoU(self, imgId: int, catId: int) -> np.ndarray:
        return self._overlaps[imgId, catId]


def evaluate(parts: list[dict[str, Any]], objects: Objects, labels: list[int]) -> np.ndarray:
    """Return the precision of classes, float64 [IoUs, recalls, classes]; -1 for classes without objects.

    parts: from each process, its detections of these classes, with the columns LISTED and `overlaps`.
    """
    overlaps: dict[tuple[int, int], np.ndarray] = {}
    for part in parts:
        start = 0
        for pair in objects.pairs(part["images"], part["labels"]):
            end = start + pair.size()
            overlaps[pair.key] = part["overlaps"][start:end].reshape(-1, len(pair.objects))
            start = end
    joined = {key: np.concatenate([part[key] for part in parts]) for key in LISTED}
    image_ids, class_ids = objects.ids(joined["images"], joined["labels"])
    columns = (image_ids, class_ids, joined["scores"], joined["areas"])
    detections = [
        {"id": number, "image_id": image, "category_id": label, "score": score, "area": area}
        for number, (image, label, score, area) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True), 1
        )
    ]
    evaluation = OverlapEvaluation(objects, detections, overlaps)
    evaluation.params.catIds = [objects.index.class_ids[label - 1] for label in labels]
    evaluation.evaluate()
    evaluation.accumulate()
    precision: np.ndarray = evaluation.eval["precision"][:, :, :, 0, 0]
    return precision


def _names(iou_type: IouType) -> tuple[str, str]:
    return f"{PREFIX[iou_type]}_map", f"{PREFIX[iou_type]}_map_50"


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the garbage collector: it would scan millions of new dicts again and again without freeing any."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the number of processes."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def _from_all(value: T) -> list[T]:
    """Return every process's value, by rank."""
    _, world_size = _rank_and_world_size()
    gathered = [value] * world_size
    if world_size > 1:
        dist.all_gather_object(gathered, value)
    return gathered


def _gathered_on(receiver: int, value: T) -> list[T] | None:
    """Return every process's value, by rank, on the receiver; None on the others."""
    rank, world_size = _rank_and_world_size()
    if world_size == 1:
        return [value]
    gathered: list[Any] | None = [None] * world_size if rank == receiver else None
    dist.gather_object(value, gathered, dst=receiver)
    return gathered


def _chosen(detections: dict[str, Any], chosen: np.ndarray) -> dict[str, Any]:
    masks = [detections["masks"][at] for at in np.flatnonzero(chosen)] if detections["masks"] else []
    return {key: value[chosen] for key, value in detections.items() if key != "masks"} | {"masks": masks}
