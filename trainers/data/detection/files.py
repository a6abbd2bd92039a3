"""Detection data: a COCO index and its JPEG files as batches that a detector can be trained on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.coco import CocoIndex, DetectionEvaluator, IouType, load_index
from trainers.data.crop import crop_resize
from trainers.data.detection.batch import (
    all_to_device,
    gather_edges,
    gather_objects,
    move,
    move_edges,
    pad_edges,
    shown,
)  # fmt: skip
from trainers.data.detection.synthetic import generated_batch
from trainers.data.detection.view import ShortEdge, View
from trainers.data.image_limit import MAX_IMAGE_PIXELS
from trainers.data.jpeg import Decoded, JpegReader, generated, threads_per_process
from trainers.data.prefetch import prefetch
from trainers.data.shapes import ensure
from trainers.data.version import digest, manifest

if TYPE_CHECKING:
    from trainers.data.types import Batch, Shard

log = logging.getLogger(__name__)

OBJECTS_STEP = 8  # room for objects is rounded up to a multiple of this


def coco(
    path: str,
    year: int | None = None,
    decode: str = "auto",
    num_threads: int | None = None,
    max_image_pixels: int = MAX_IMAGE_PIXELS,
) -> CocoData:
    """COCO in its own layout in folder `path`. Raises ConfigError where it is not there or not whole."""
    train = load_index(path, "train", year, max_image_pixels=max_image_pixels)
    val = load_index(path, "val", year, max_image_pixels=max_image_pixels)
    return CocoData("coco", train, val, decode, num_threads, max_image_pixels)


def shapes(size: int = 4000, path: str | None = None, decode: str = "auto", num_threads: int | None = None) -> CocoData:
    """Drawn objects on textured grounds, `size` training images; drawn into a cache the first time."""
    root = str(ensure("detection", size, path))
    return CocoData("shapes", load_index(root, "train"), load_index(root, "val"), decode, num_threads)


class CocoData:
    """Implements trainers.data.types.DetectionData and Viewable: images are cut as a View says."""

    view: View = ShortEdge()

    def __init__(
        self,
        name: str,
        train: CocoIndex,
        val: CocoIndex,
        decode: str = "auto",
        num_threads: int | None = None,
        max_image_pixels: int = MAX_IMAGE_PIXELS,
    ) -> None:
        if train.class_ids != val.class_ids:
            raise ConfigError(
                f"dataset={name}: {train.annotations} and {val.annotations} have other categories; use two files of"
                " one dataset"
            )
        for index in (train, val):
            for note in index.notes:
                log.warning("%s: %s", index.annotations, note)
        self.name, self.train, self.val = name, train, val
        self.decode, self.num_threads, self.max_image_pixels = decode, num_threads, max_image_pixels
        self.class_names, self.num_classes = train.class_names, len(train.class_names)
        self._reader: JpegReader | None = None
        self.trained_on = train.trainable()
        for index, use in ((train, "train"), (val, "evaluate")):
            if not len(index.trainable()):
                raise ConfigError(f"{index.annotations}: no image has an object to {use} on; check the file")
        most = np.bincount(
            np.repeat(np.arange(len(train.image_ids)), np.diff(train.object_start)), weights=~train.crowd
        ).max()
        self.num_objects = -(-int(most) // OBJECTS_STEP) * OBJECTS_STEP

    def viewed(self, view: View) -> CocoData:
        data = copy(self)
        data.view = view
        return data

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """A generated batch of each canvas in use, images cut as real ones are, so that this is compiled as well."""
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
        """Of the images' names and sizes and their objects, and of the manifest of drawn ones; no image is read."""
        parts: list[Any] = [manifest(self.train.folder.parent)]
        for index in (self.train, self.val):
            parts += [index.file_names, index.sizes, index.object_start, index.boxes, index.labels, index.crowd]
        return digest([*parts, self.class_names])

    def reader(self, shard: Shard) -> JpegReader:
        """One for training and evaluation; making it sets up the device's decoder, which takes a while."""
        if self._reader is None:
            num_threads = self.num_threads
            if num_threads is None:
                num_threads = threads_per_process(shard.world_size)
            self._reader = JpegReader(shard.device, num_threads, self.decode, self.max_image_pixels)
        return self._reader


@dataclass(frozen=True)
class Step:
    """One process's part of a global batch."""

    canvas: tuple[int, int]
    images: np.ndarray  # int64 [n], places in the index
    real: np.ndarray  # bool [n], false for what only fills up the batch
    num_real_global: int


class DetectionLoader:
    """One process's share of the images, each of which counts exactly once over all processes.

    Batches are of one canvas. For training, one permutation an epoch, the same on every process, is dealt out canvas by
    canvas into global batches, which are then shuffled; the last of a canvas is filled up with images of weight zero.
    """

    def __init__(
        self,
        data: CocoData,
        part: Literal["train", "val"],
        images: np.ndarray,
        batch_size: int,
        seed: int,
        shard: Shard,
    ) -> None:
        self.data, self.part, self.batch_size, self.seed, self.shard = data, part, batch_size, seed, shard
        self.index = data.train if part == "train" else data.val
        self.view = data.view
        self.epoch = 0
        canvas = self.view.canvas_of(self.index.sizes[images])
        self._groups = {int(number): images[canvas == number] for number in np.unique(canvas)}
        self._reader = data.reader(shard)

    def __len__(self) -> int:
        return sum(-(-len(group) // self._global_batch()) for group in self._groups.values())

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator: Lightning calls iter() while it sets up, and nothing may be read before the first next().
        yield from prefetch(self._batches(self.epoch), self.shard.device)

    def _global_batch(self) -> int:
        return self.batch_size * self.shard.world_size

    def steps(self, epoch: int) -> list[Step]:
        rng = np.random.RandomState([self.seed, epoch])  # its streams are frozen (NEP 19)
        steps = []
        for canvas, group in self._groups.items():
            order = rng.permutation(group) if self.part == "train" else group
            for first in range(0, len(order), self._global_batch()):
                images = order[first : first + self._global_batch()]
                own = np.arange(self.batch_size) * self.shard.world_size + self.shard.rank
                steps.append(
                    Step(self.view.canvases[canvas], np.resize(images, self._global_batch())[own], own < len(images),
                         len(images))
                )  # fmt: skip
        return [steps[step] for step in rng.permutation(len(steps))] if self.part == "train" else steps

    def _batches(self, epoch: int) -> Iterator[Batch]:
        steps = self.steps(epoch)
        decoded = self._reader.read_ahead(self.index.paths(step.images) for step in steps)
        for number, (step, images) in enumerate(zip(steps, decoded, strict=True)):
            yield self._batch(step, images, np.random.RandomState([self.seed, epoch, self.shard.rank, number]))

    def _batch(self, step: Step, decoded: Decoded, rng: np.random.RandomState) -> Batch:
        index, device = self.index, self.shard.device
        sizes = index.sizes[step.images]
        self._check_sizes(step, sizes, decoded.host_sizes)
        objects, there = gather_objects(index, step.images, self.data.num_objects)
        boxes, labels = index.boxes[objects], np.where(there, index.labels[objects], 0)
        if self.part == "train":
            cut = self.view.train(rng, sizes, boxes, labels, step.canvas)
        else:
            cut = self.view.evaluate(sizes, step.canvas)
        boxes, left = shown(move(boxes, cut, slice(None)), there, cut, self.view.drop_outside)
        arrays = {
            "boxes": boxes,
            "labels": np.where(left, labels, 0),
            "sizes": cut.out_sizes.astype(np.float32),
            "weights": self._weights(step),
            "image_index": np.where(step.real, step.images, -1),
            "crops": cut.crops,
        }
        if self.view.outlines:
            edges, owner = gather_edges(index, objects, left)
            edges = move_edges(edges, cut, owner // self.data.num_objects)
            arrays |= pad_edges(edges, owner, left.size)
        tensors = all_to_device(arrays | cut._asdict(), device)
        flips, out_sizes = tensors.pop("flips"), tensors.pop("out_sizes")
        images = crop_resize(decoded, tensors["crops"], flips, out_sizes, step.canvas)
        return {**tensors, "images": images, "num_samples": int(step.real.sum())}

    def _weights(self, step: Step) -> np.ndarray:
        weight = self.shard.world_size / step.num_real_global if self.part == "train" else 1.0
        return (step.real * weight).astype(np.float32)

    def _check_sizes(self, step: Step, told: np.ndarray, decoded: np.ndarray) -> None:
        wrong = np.flatnonzero((told != decoded).any(axis=1))
        if len(wrong):
            image = step.images[wrong[0]]
            raise ConfigError(
                f"{self.index.folder / self.index.file_names[image]}: is {decoded[wrong[0]].tolist()} pixels (height,"
                f" width), but {self.index.annotations} says {told[wrong[0]].tolist()}; put the original file in place"
            )


class TrainLoader(DetectionLoader):
    @property
    def sampler(self) -> TrainLoader:
        """Lightning sets the epoch of a loader's `sampler` (lightning_fabric.utilities.data._set_sampler_epoch)."""
        return self
