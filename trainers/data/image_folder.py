"""Images in folders named after their class, `train/<class>/*.JPEG` and `val/<class>/*.JPEG`, as in ImageNet.

Files are read, decoded and cropped while the device trains on earlier batches. Crops are drawn by place in the global
batch, so they do not depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import torch

from tracking.base import old_paths
from trainers.data.crop import NUM_DRAWS, SquareView, centre_crops, crop_resize, random_crops
from trainers.data.jpeg import Decoded, JpegReader, SharedReader, generated
from trainers.data.loading.order import EvalOrder, TrainOrder
from trainers.data.loading.position import Positioned
from trainers.data.loading.prefetch import all_to_device, prefetch, to_device
from trainers.data.loading.version import digest, manifest
from trainers.data.reading.folder_index import FolderIndex, load_index
from trainers.data.reading.image_limit import MAX_IMAGE_PIXELS

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

# Returns crops float32 [n, 4] and flips bool [n] for a step's images of these sizes, int64 [n, 2].
Cutter = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]


def imagenet(
    path: str, decode: str = "auto", num_threads: int | None = None, max_image_pixels: int = MAX_IMAGE_PIXELS
) -> ImageFolderData:
    """Return ImageNet, or another set of this layout, in folder `path`. Raises ConfigError if files are missing.

    Source: O. Russakovsky et al. 2014, arXiv:1409.0575; 1,281,167 training and 50,000 validation images.
    """
    return ImageFolderData("imagenet", *load_index(path), SharedReader(decode, num_threads, max_image_pixels))


def shapes(
    size: int = 4000, path: str | None = None, decode: str = "auto", num_threads: int | None = None
) -> ImageFolderData:
    """Return drawn shapes on textured backgrounds, `size` training images; the first use draws them into a cache."""
    from trainers.data.shapes import ensure

    index = load_index(str(ensure("classification", size, path)))
    return ImageFolderData("shapes", *index, SharedReader(decode, num_threads))


class ImageFolderData:
    """Implements trainers.data.loading.types.ClassificationData and Viewable: a SquareView defines the crops.

    Batches hold images uint8 [n, 3, height, width] with channels_last strides, and labels int64 [n].
    """

    view = SquareView()

    def __init__(self, name: str, train: FolderIndex, val: FolderIndex, reader: SharedReader) -> None:
        self.name, self.train, self.val, self.reader = name, train, val, reader
        self.class_names, self.num_classes = train.class_names, len(train.class_names)

    @property
    def image_size(self) -> tuple[int, int]:
        return self.view.image_size, self.view.image_size

    def viewed(self, view: SquareView) -> ImageFolderData:
        data = copy(self)
        data.view = view
        return data

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """Return one batch cropped from noise, so that the crop's kernel, too, is compiled before the clock starts."""
        rng = np.random.RandomState(0)  # a separate generator, so that warming up does not change the run's
        decoded = generated(batch_size, device)
        draws = rng.random_sample((batch_size, NUM_DRAWS))
        batch = {
            "images": self._cut(decoded, *random_crops(draws, decoded.host_sizes)),
            "labels": torch.from_numpy(rng.randint(0, self.num_classes, batch_size)).to(device),
            "weights": torch.full((batch_size,), 1.0 / batch_size, device=device),
            "num_samples": batch_size,
        }
        return [batch]

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> TrainLoader:
        return TrainLoader(self, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> EvalLoader:
        return EvalLoader(self, batch_size, shard)

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def version(self) -> str:
        """Return a digest of the files' names and labels, and of the manifest of drawn images; no image is read."""
        parts = [(index.files, index.labels, index.class_names) for index in (self.train, self.val)]
        return digest([*parts[0], *parts[1], manifest(self.train.folder.parent)])

    def load(self, reader: JpegReader, index: FolderIndex, steps: np.ndarray, cutter: Cutter) -> Iterator[Batch]:
        """Yield images and labels of the samples, int64 [steps, n]: what a batch takes from the files."""
        for step, decoded in enumerate(reader.read_ahead(map(index.paths, steps))):
            images = self._cut(decoded, *cutter(step, decoded.host_sizes))
            yield {"images": images, "labels": to_device(index.labels[steps[step]], reader.device)}

    def _cut(self, decoded: Decoded, crops: np.ndarray, flips: np.ndarray) -> torch.Tensor:
        device = decoded.pixels.device
        out_sizes = torch.full((len(crops), 2), self.view.image_size, device=device)
        moved = all_to_device({"crops": crops, "flips": flips}, device)
        return crop_resize(decoded, moved["crops"], moved["flips"], out_sizes, self.image_size)


class TrainLoader(Positioned):
    """One process's share of the training images, in `TrainOrder`, cropped and flipped at random."""

    def __init__(self, data: ImageFolderData, batch_size: int, seed: int, shard: Shard) -> None:
        self.data, self.shard = data, shard
        self.order = TrainOrder(len(data.train.labels), batch_size, seed, shard)
        self.reader = data.reader.of(shard)
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator, because Lightning calls iter() during setup and nothing may be read before the first next().
        return prefetch(self._batches(), self.shard.device)

    def _batches(self) -> Iterator[Batch]:
        epoch, first = self.epoch, self.first_step()

        def cutter(step: int, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return random_crops(self._draws(epoch, first + step), sizes, self.data.view.min_crop_area)

        loaded = self.data.load(self.reader, self.data.train, self.order.indices(epoch)[first:], cutter)
        for step, batch in enumerate(loaded, first):
            yield {**batch, "weights": self.order.weights(step), "num_samples": self.order.num_real(step)}

    def _draws(self, epoch: int, step: int) -> np.ndarray:
        rng = np.random.RandomState([self.order.seed, epoch, step])
        # Draw for the whole global batch, and take this process's part.
        return rng.random_sample((self.order.batch_size, self.shard.world_size, NUM_DRAWS))[:, self.shard.rank]


class EvalLoader:
    """One process's share of the validation images, in `EvalOrder`, cropped to the centre."""

    def __init__(self, data: ImageFolderData, batch_size: int, shard: Shard) -> None:
        self.data, self.shard = data, shard
        self.order = EvalOrder(len(data.val.labels), batch_size, shard)
        self.reader = data.reader.of(shard)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the order is the same in all epochs."""

    def __iter__(self) -> Iterator[Batch]:
        return prefetch(self._batches(), self.shard.device)

    def _batches(self) -> Iterator[Batch]:
        loaded = self.data.load(self.reader, self.data.val, self.order.indices(), self._centre)
        for step, batch in enumerate(loaded):
            yield {**batch, "weights": self.order.weights(step), "num_samples": self.order.num_real(step)}

    def _centre(self, step: int, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        view = self.data.view
        return centre_crops(sizes, view.eval_resize, view.image_size), np.zeros(len(sizes), bool)


old_paths.watch(__name__)
