"""Loads batches of detection data: assigns images to batches and processes, and crops them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from conf.schema import ConfigError
from trainers.data.crop import crop_resize
from trainers.data.detection.batch import gather_edges, gather_objects, move, move_edges, pad_edges, shown
from trainers.data.jpeg import Decoded
from trainers.data.loading.position import Positioned
from trainers.data.loading.prefetch import all_to_device, prefetch

if TYPE_CHECKING:
    from trainers.data.coco import CocoIndex
    from trainers.data.detection.view import View
    from trainers.data.jpeg import SharedReader
    from trainers.data.loading.types import Batch, Shard


class Source(Protocol):
    """The parts of a dataset that a loader uses."""

    train: CocoIndex
    val: CocoIndex
    view: View
    num_objects: int  # room for the objects of an image
    reader: SharedReader


@dataclass(frozen=True)
class Step:
    """One process's part of a global batch."""

    canvas: tuple[int, int]
    images: np.ndarray  # int64 [n], positions in the index
    real: np.ndarray  # bool [n], False for padding
    num_real_global: int


class DetectionLoader(Positioned):
    """One process's share of the images; over all processes each image counts exactly once.

    The images of a batch have one canvas. For training, the images of each canvas are permuted every epoch, in the same
    way on all processes, and split into global batches, which are then shuffled. The last batch of a canvas is padded
    with images of weight zero.
    """

    def __init__(
        self, data: Source, part: Literal["train", "val"], images: np.ndarray, batch_size: int, seed: int, shard: Shard
    ) -> None:
        self.data, self.part, self.batch_size, self.seed, self.shard = data, part, batch_size, seed, shard
        self.index = data.train if part == "train" else data.val
        self.view = data.view
        self.epoch = 0
        canvas = self.view.canvas_of(self.index.sizes[images])
        self._groups = {int(number): images[canvas == number] for number in np.unique(canvas)}
        self._reader = data.reader.of(shard)

    def __len__(self) -> int:
        return sum(-(-len(group) // self._global_batch()) for group in self._groups.values())

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator, because Lightning calls iter() during setup and nothing may be read before the first next().
        yield from prefetch(self._batches(self.epoch), self.shard.device)

    def _global_batch(self) -> int:
        return self.batch_size * self.shard.world_size

    def steps(self, epoch: int) -> list[Step]:
        rng = np.random.RandomState([self.seed, epoch])  # RandomState's streams are frozen (NEP 19).
        steps = []
        for canvas, group in self._groups.items():
            order = rng.permutation(group) if self.part == "train" else group
            for first in range(0, len(order), self._global_batch()):
                images = order[first : first + self._global_batch()]
                places = np.arange(self.batch_size) * self.shard.world_size + self.shard.rank
                steps.append(
                    Step(self.view.canvases[canvas], np.resize(images, self._global_batch())[places],
                         places < len(images), len(images))
                )  # fmt: skip
        return [steps[step] for step in rng.permutation(len(steps))] if self.part == "train" else steps

    def _batches(self, epoch: int) -> Iterator[Batch]:
        first = self.first_step()
        steps = self.steps(epoch)[first:]
        decoded = self._reader.read_ahead(self.index.paths(step.images) for step in steps)
        for number, (step, images) in enumerate(zip(steps, decoded, strict=True), first):
            yield self._batch(step, images, np.random.RandomState([self.seed, epoch, self.shard.rank, number]))

    def _batch(self, step: Step, decoded: Decoded, rng: np.random.RandomState) -> Batch:
        index, device = self.index, self.shard.device
        sizes = index.sizes[step.images]
        self._check_sizes(step, sizes, decoded.host_sizes)
        objects, filled = gather_objects(index, step.images, self.data.num_objects)
        boxes, labels = index.boxes[objects], np.where(filled, index.labels[objects], 0)
        if self.part == "train":
            cut = self.view.train(rng, sizes, boxes, labels, step.canvas)
        else:
            cut = self.view.evaluate(sizes, step.canvas)
        boxes, left = shown(move(boxes, cut, slice(None)), filled, cut, self.view.drop_outside)
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
            arrays |= pad_edges(edges, owner, len(left), left.size)
        tensors = all_to_device(arrays | cut._asdict(), device)
        flips, out_sizes = tensors.pop("flips"), tensors.pop("out_sizes")
        images = crop_resize(decoded, tensors["crops"], flips, out_sizes, step.canvas)
        return {**tensors, "images": images, "num_samples": int(step.real.sum())}

    def _weights(self, step: Step) -> np.ndarray:
        weight = self.shard.world_size / step.num_real_global if self.part == "train" else 1.0
        return (step.real * weight).astype(np.float32)

    def _check_sizes(self, step: Step, annotated: np.ndarray, decoded: np.ndarray) -> None:
        wrong = np.flatnonzero((annotated != decoded).any(axis=1))
        if len(wrong):
            image = step.images[wrong[0]]
            raise ConfigError(
                f"{self.index.folder / self.index.file_names[image]}: is {decoded[wrong[0]].tolist()} pixels (height,"
                f" width), but {self.index.annotations} says {annotated[wrong[0]].tolist()}. Next: put the original"
                " file in place"
            )


class TrainLoader(DetectionLoader):
    """The loader of training images."""
