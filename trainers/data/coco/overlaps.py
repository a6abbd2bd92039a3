"""Measures the overlaps of detections with the objects of their image and class, as in COCO's protocol.

Each process measures the overlaps of its images. Detections are then matched with objects over all images, from the
overlaps alone (trainers.data.coco.average_precision).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from faster_coco_eval import COCO
from faster_coco_eval.core import mask as regions
from faster_coco_eval.faster_eval_api_cpp import Dataset

from trainers.data.coco.index import CocoIndex
from trainers.data.coco.outlines import MIN_POINTS
from trainers.data.reading.regular_file import read_bytes

IouType = Literal["bbox", "segm"]

MAX_DETECTIONS = 100  # per image and class, the protocol's limit


class Pair(NamedTuple):
    """An image and a class that have both objects and detections."""

    key: tuple[int, int]  # ids of image and class in the annotations
    detections: slice  # the detections that count, by descending score
    objects: list[dict[str, Any]]  # the annotations, in the file's order

    def size(self) -> int:
        num_detections: int = self.detections.stop - self.detections.start
        return num_detections * len(self.objects)


class Objects:
    """All annotations of the file: the protocol also counts objects that are not used for training.

    They are read when detections are first compared with them, which the warm-up before the clock does not do.
    """

    def __init__(self, index: CocoIndex, masks: bool) -> None:
        self.index, self._masks = index, masks
        self._sizes = dict(zip(index.image_ids.tolist(), map(tuple, index.sizes.tolist()), strict=True))

    @cached_property
    def coco(self) -> COCO:
        content = json.loads(read_bytes(self.index.annotations))
        annotations = []
        for number, read in enumerate(content["annotations"], start=1):
            # Copy only these keys, because the library uses others for its own purposes.
            annotation = {key: read[key] for key in ("image_id", "category_id", "bbox")}
            annotation["id"] = number  # The file's id may be missing, or 0, which would count as unmatched.
            annotation["area"] = read.get("area", 0)
            annotation["iscrowd"] = annotation["ignore"] = int(read.get("iscrowd", 0))
            if self._masks:  # Without masks they have not been checked.
                annotation["segmentation"] = _region(read.get("segmentation"), *self._sizes[annotation["image_id"]])
            annotations.append(annotation)
        parts = {"images": content["images"], "annotations": annotations, "categories": content["categories"]}
        return COCO(parts, print_function=silent)

    @cached_property
    def _by_pair(self) -> dict[tuple[int, int], list[dict[str, Any]]]:
        annotations: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for annotation in self.coco.dataset["annotations"]:
            annotations.setdefault((annotation["image_id"], annotation["category_id"]), []).append(annotation)
        return annotations

    @cached_property
    def dataset(self) -> Dataset:
        """Return the annotations in the library's form for matching."""
        dataset = Dataset()
        for annotation in self.coco.dataset["annotations"]:
            dataset.append_ref(annotation["image_id"], annotation["category_id"], annotation)
        return dataset

    def ids(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids in the annotations of images (positions in the index) and labels (from 1 on)."""
        return self.index.image_ids[images], np.array(self.index.class_ids)[labels - 1]

    def pairs(self, images: np.ndarray, labels: np.ndarray) -> Iterator[Pair]:
        """Yield the pairs of detections sorted by image, label and descending score: int64 [K] each."""
        starts = np.flatnonzero(np.diff(images, prepend=-1) | np.diff(labels, prepend=-1))
        image_ids, class_ids = self.ids(images[starts], labels[starts])
        ends = np.minimum([*starts[1:], len(images)], starts + MAX_DETECTIONS)
        for start, end, *key in zip(*(column.tolist() for column in (starts, ends, image_ids, class_ids)), strict=True):
            if objects := self._by_pair.get((key[0], key[1])):
                yield Pair((key[0], key[1]), slice(start, end), objects)

    def overlaps(self, detections: dict[str, Any], iou_type: IouType) -> np.ndarray:
        """Return the overlaps of all pairs, one after the other, each [detections, objects] in row order, as float64.

        detections: `images` and `labels` as for `pairs`, and `boxes` [K, 4] x0 y0 x1 y1, or `masks`, K compressed run
        lengths.
        """
        pairs = list(self.pairs(detections["images"], detections["labels"]))
        if iou_type == "segm":
            new = [annotation for pair in pairs for annotation in pair.objects if "rle" not in annotation]
            regions.calculateRleForAllAnnotations(new, self._sizes, True, False, 0.0, 1)
        parts = [np.zeros(0)]
        for pair in pairs:
            crowds = [annotation["iscrowd"] for annotation in pair.objects]
            if iou_type == "bbox":
                boxes = detections["boxes"][pair.detections]
                shown = np.concatenate((boxes[:, :2], boxes[:, 2:] - boxes[:, :2]), axis=1).tolist()
                objects = [annotation["bbox"] for annotation in pair.objects]
            else:
                size = self._sizes[pair.key[0]]
                shown = [{"size": size, "counts": mask} for mask in detections["masks"][pair.detections]]
                objects = [annotation["rle"] for annotation in pair.objects]
            parts.append(np.asarray(regions.iou(shown, objects, crowds)).ravel())
        return np.concatenate(parts)


def silent(*_: object) -> None:
    pass


def _region(segmentation: Any, height: int, width: int) -> Any:
    """Return a segmentation as `outlines` reads it; an empty region if it is missing, which the library refuses."""
    if isinstance(segmentation, list):
        segmentation = [part for part in segmentation if len(part) >= 2 * MIN_POINTS]
    return segmentation or {"size": [height, width], "counts": [height * width]}
