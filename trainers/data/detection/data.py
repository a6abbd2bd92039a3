"""A COCO index and its JPEG files as a dataset for detectors."""

from __future__ import annotations

import itertools
import logging
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.coco import CocoIndex, DetectionEvaluator, IouType, load_index
from trainers.data.crop import crop_resize
from trainers.data.detection.loader import DetectionLoader, TrainLoader
from trainers.data.detection.synthetic import generated_batch
from trainers.data.detection.view import ShortEdge, View
from trainers.data.jpeg import SharedReader, generated
from trainers.data.loading.version import digest, manifest
from trainers.data.reading.image_limit import MAX_IMAGE_PIXELS
from trainers.data.shapes import ensure

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

log = logging.getLogger(__name__)

OBJECTS_STEP = 8  # The room for objects is rounded up to a multiple of this.


def coco(
    path: str,
    year: int | None = None,
    decode: str = "auto",
    num_threads: int | None = None,
    max_image_pixels: int = MAX_IMAGE_PIXELS,
) -> CocoData:
    """Return COCO, in its own layout, from folder `path`. Raises ConfigError if it is missing or incomplete."""
    train = load_index(path, "train", year, max_image_pixels=max_image_pixels)
    val = load_index(path, "val", year, max_image_pixels=max_image_pixels)
    return CocoData("coco", train, val, SharedReader(decode, num_threads, max_image_pixels))


def shapes(size: int = 4000, path: str | None = None, decode: str = "auto", num_threads: int | None = None) -> CocoData:
    """Return drawn objects on textured backgrounds, `size` training images; the first use draws them into a cache."""
    root = str(ensure("detection", size, path))
    reader = SharedReader(decode, num_threads)
    return CocoData("shapes", load_index(root, "train"), load_index(root, "val"), reader)


class CocoData:
    """Implements trainers.data.loading.types.DetectionData and Viewable; a View says how images are cropped."""

    view: View = ShortEdge()

    def __init__(self, name: str, train: CocoIndex, val: CocoIndex, reader: SharedReader) -> None:
        _check_categories(name, train, val)
        for index in (train, val):
            for note in index.notes:
                log.warning("%s: %s", index.annotations, note)
        self.name, self.train, self.val, self.reader = name, train, val, reader
        self.class_names, self.num_classes = train.class_names, len(train.class_names)
        self.trained_on = train.trainable()
        for index, use in ((train, "train"), (val, "evaluate")):
            if not len(index.trainable()):
                raise ConfigError(f"{index.annotations}: no image has an object to {use} on. Next: check the file")
        most = np.bincount(
            np.repeat(np.arange(len(train.image_ids)), np.diff(train.object_start)), weights=~train.crowd
        ).max()
        self.num_objects = -(-int(most) // OBJECTS_STEP) * OBJECTS_STEP

    def viewed(self, view: View) -> CocoData:
        data = copy(self)
        data.view = view
        return data

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """Return a generated batch for each canvas in use, cropped like real ones, so that this is compiled, too."""
        view = self.view
        decoded = generated(batch_size, device)
        crops = torch.cat((torch.zeros_like(decoded.sizes), decoded.sizes.flip(1)), dim=1).float()
        flips = torch.zeros(batch_size, dtype=torch.bool, device=device)
        batches = []
        for used in np.unique(view.canvas_of(np.concatenate((self.train.sizes[self.trained_on], self.val.sizes)))):
            canvas = view.canvases[used]
            batch = generated_batch(batch_size, canvas, self.num_objects, self.num_classes, view.outlines, device)
            batch["images"] = crop_resize(decoded, crops, flips, batch["sizes"].long(), canvas)
            batches.append(batch)
        return batches

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> TrainLoader:
        return TrainLoader(self, "train", self.trained_on, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> DetectionLoader:
        return DetectionLoader(self, "val", np.arange(len(self.val.image_ids)), batch_size, 0, shard)

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def evaluator(self, iou_types: tuple[IouType, ...]) -> DetectionEvaluator:
        return DetectionEvaluator(self.val, iou_types)

    def version(self) -> str:
        """Return a digest of the images' names, sizes and objects, and of the manifest of drawn ones; none is read."""
        parts: list[Any] = [manifest(self.train.folder.parent)]
        for index in (self.train, self.val):
            parts += [index.file_names, index.sizes, index.object_start, index.boxes, index.labels, index.crowd]
        return digest([*parts, self.class_names])


def _check_categories(name: str, train: CocoIndex, val: CocoIndex) -> None:
    """Raise ConfigError if a label is not the same category in both splits."""
    ours, theirs = (list(zip(index.class_ids, index.class_names, strict=True)) for index in (train, val))
    for first, other in itertools.zip_longest(ours, theirs):
        if first != other:
            raise ConfigError(
                f"dataset={name}: {train.annotations} and {val.annotations} have different categories. The first is"
                f" {_category(first)} in the former and {_category(other)} in the latter. Next: give two files of one"
                " dataset"
            )


def _category(category: tuple[int, str] | None) -> str:
    return "missing" if category is None else f"id {category[0]} {category[1]!r}"
