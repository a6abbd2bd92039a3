"""How much detections overlap the objects of their image and class, as COCO's protocol measures it.

Only these are measured: of the images of a process, by that process. Which detection then counts for which object is
decided over all images, from the overlaps alone (trainers.data.coco.average_precision).
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

IouType = Literal["bbox", "segm"]

MAX_DETECTIONS = 100  # an image and class, the protocol's most


class Pair(NamedTuple):
    """An image and a class that have both objects and detections."""

    key: tuple[int, int]  # their ids in the annotations
    detections: slice  # those that count, by falling score
    objects: list[dict[str, Any]]  # the annotations, in their order

    def size(self) -> int:
        num_detections: int = self.detections.stop - self.detections.start
        return num_detections * len(self.objects)


class Objects:
    """The annotations as they are in the file: the protocol also counts objects that are not to be learnt from.

    They are read when detections are first compared with them, which the warm-up before the clock does not do.
    """

    def __init__(self, index: CocoIndex, masks: bool) -> None:
        self.index, self._masks = index, masks
        self._sizes = dict(zip(index.image_ids.tolist(), map(tuple, index.sizes.tolist()), strict=True))

    @cached_property
    def coco(self) -> COCO:
        content = json.loads(self.index.annotations.read_bytes())
        annotations = []
        for number, read in enumerate(content["annotations"], start=1):
            # Nothing else of what the file says, since the library would take some of it for its own notes.
            annotation = {key: read[key] for key in ("image_id", "category_id", "bbox")}
            annotation["id"] = number  # the file's may be missing or 0, which would count as unmatched
            annotation["area"] = read.get("area", 0)
            annotation["iscrowd"] = annotation["ignore"] = int(read.get("iscrowd", 0))
            if self._masks:  # else nobody has checked them
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
        """The same, as the library matches them."""
        dataset = Dataset()
        for annotation in self.coco.dataset["annotations"]:
            dataset.append_ref(annotation["image_id"], annotation["category_id"], annotation)
        return dataset

    def ids(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The annotations' ids of positions in the index and of labels from 1 on."""
        return self.index.image_ids[images], np.array(self.index.class_ids)[labels - 1]

    def pairs(self, images: np.ndarray, labels: np.ndarray) -> Iterator[Pair]:
        """Of detections that are sorted by image, label and falling score: int64 [K] each."""
        starts = np.flatnonzero(np.diff(images, prepend=-1) | np.diff(labels, prepend=-1))
        image_ids, class_ids = self.ids(images[starts], labels[starts])
        ends = np.minimum([*starts[1:], len(images)], starts + MAX_DETECTIONS)
        for start, end, *key in zip(*(column.tolist() for column in (starts, ends, image_ids, class_ids)), strict=True):
            if objects := self._by_pair.get((key[0], key[1])):
                yield Pair((key[0], key[1]), slice(start, end), objects)

    def overlaps(self, detections: dict[str, Any], iou_type: IouType) -> np.ndarray:
        """Of all pairs, one after the other, each [detections, objects] row by row: float64 [sum of the pairs' sizes].

        detections: `images` and `labels` as for `pairs`; `boxes` [K, 4] x0 y0 x1 y1, or `masks`, K compressed run
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
    """As `outlines` reads it; a region of no pixels where there is none, which the library refuses."""
    if isinstance(segmentation, list):
        segmentation = [part for part in segmentation if len(part) >= 2 * MIN_POINTS]
    return segmentation or {"size": [height, width], "counts": [height * width]}
