"""Image data that fits into the device's memory: read once, at the first batch, and served from the device.

A batch takes two gathers on the device, and no copy, worker process or synchronisation on the host. Shapes never
change, so one compiled graph serves a whole run; padding of the last batch has weight zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from conf.schema import ConfigError
from tracking.base import old_paths
from trainers.data.loading.order import EvalOrder, TrainOrder
from trainers.data.loading.position import Positioned
from trainers.data.loading.version import digest

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

Source = Literal["train", "test"]  # sets in a dataset's files
Part = Literal["train", "eval", "test"]  # "eval" is split off the "train" source
# Images uint8 [n, height, width] and integer labels [n].
Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Samples:
    """One part of the data, on the device: images uint8 [n, 1, height, width] and labels int64 [n]."""

    images: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class ImageData:
    """Grey-scale images in memory; implements trainers.data.loading.types.ClassificationData.

    Sizes are declared, so that lengths are known without reading. `read("train")` returns `num_train + num_eval`
    samples, and `read("test")` returns `num_test` (0 for no test set). Reading raises ConfigError for other sizes.
    """

    name: str
    num_classes: int
    image_size: tuple[int, int]  # height, width
    class_names: tuple[str, ...]
    num_train: int
    num_eval: int
    num_test: int
    read: Callable[[Source], Arrays]
    _cache: dict[tuple[Part, torch.device], Samples] = field(default_factory=dict, repr=False, compare=False)

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """Return one generated full batch, from a separate generator: warming up must not change the run's."""
        generator = torch.Generator().manual_seed(0)
        shape = (batch_size, 1, *self.image_size)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, self.num_classes, (batch_size,), generator=generator)
        example: Batch = {
            "images": images.to(device),
            "labels": labels.to(device),
            "weights": torch.full((batch_size,), 1.0 / batch_size, device=device),
            "num_samples": batch_size,
        }
        return [example]

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> TrainLoader:
        return TrainLoader(self, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> EvalLoader:
        return EvalLoader(self, "eval", self.num_eval, batch_size, shard)

    def test_loader(self, batch_size: int, shard: Shard) -> EvalLoader | None:
        return EvalLoader(self, "test", self.num_test, batch_size, shard) if self.num_test else None

    def samples(self, part: Part, device: torch.device) -> Samples:
        """Return a part of the data on the device; the first call reads the files."""
        if (part, device) not in self._cache:
            for name, (images, labels) in self._read_parts("test" if part == "test" else "train").items():
                self._cache[name, device] = Samples(
                    torch.from_numpy(images).unsqueeze(1).to(device),
                    torch.from_numpy(labels.astype(np.int64)).to(device),
                )
        return self._cache[part, device]

    def version(self) -> str:
        """Return a digest of the images and labels that were trained and evaluated on."""
        read = {part: samples for (part, _), samples in self._cache.items() if part != "test"}
        return digest(
            tensor.cpu().numpy() for part in sorted(read) for tensor in (read[part].images, read[part].labels)
        )

    def _read_parts(self, source: Source) -> dict[Part, Arrays]:
        images, labels = self.read(source)
        self._check(source, images, labels)
        if source == "test":
            return {"test": (images, labels)}
        train, held_out = split(len(labels), self.num_eval)
        return {"train": (images[train], labels[train]), "eval": (images[held_out], labels[held_out])}

    def _check(self, source: Source, images: np.ndarray, labels: np.ndarray) -> None:
        num_samples = self.num_test if source == "test" else self.num_train + self.num_eval
        expected = (num_samples, *self.image_size)
        if images.dtype != np.uint8 or images.shape != expected or labels.shape != expected[:1]:
            raise ConfigError(
                f"dataset={self.name}: the {source} set has images {images.dtype} {list(images.shape)} and labels"
                f" {list(labels.shape)}, expected uint8 {list(expected)} and {list(expected[:1])}. Next: put the"
                " dataset's original files in place"
            )
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise ConfigError(
                f"dataset={self.name}: the {source} set has labels from {labels.min()} to {labels.max()}, expected 0"
                f" to {self.num_classes - 1}. Next: put the dataset's original files in place"
            )


def split(num_samples: int, num_held_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Return indices of the samples kept and held out, the same for every seed, so that runs can be compared."""
    # RandomState's streams are frozen (NEP 19), so every NumPy gives the same split.
    order = np.random.RandomState(0).permutation(num_samples)
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


class TrainLoader(Positioned):
    """One process's share of the shuffled training samples, in `TrainOrder`."""

    def __init__(self, data: ImageData, batch_size: int, seed: int, shard: Shard) -> None:
        self.data, self.shard = data, shard
        self.order = TrainOrder(data.num_train, batch_size, seed, shard)
        self.epoch = 0
        self._pinned: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator, because Lightning calls iter() during setup and nothing may be read before the first next().
        samples = self.data.samples("train", self.shard.device)
        indices = self._to_device(torch.from_numpy(self.order.indices(self.epoch)))
        last = len(self) - 1
        weights = {0: self.order.weights(0), last: self.order.weights(last)}
        for step in range(self.first_step(), len(self)):
            yield {
                "images": samples.images.index_select(0, indices[step]),
                "labels": samples.labels.index_select(0, indices[step]),
                "weights": weights[last if step == last else 0],
                "num_samples": self.order.num_real(step),
            }

    def _to_device(self, indices: torch.Tensor) -> torch.Tensor:
        if self.shard.device.type != "cuda":
            return indices
        if self._pinned is None:  # Once, because pinning takes milliseconds. Unpinned copies wait for the device.
            self._pinned = torch.empty_like(indices, pin_memory=True)
        return self._pinned.copy_(indices).to(self.shard.device, non_blocking=True)


class EvalLoader:
    """One process's share of a fixed part of the data, in `EvalOrder`."""

    def __init__(self, data: ImageData, part: Part, num_samples: int, batch_size: int, shard: Shard) -> None:
        self.data, self.part, self.shard = data, part, shard
        self.order = EvalOrder(num_samples, batch_size, shard)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the order is the same in all epochs."""

    def __iter__(self) -> Iterator[Batch]:
        samples = self.data.samples(self.part, self.shard.device)
        batch_size, last = self.order.batch_size, self.order.num_samples - 1
        for step in range(len(self)):
            # This step's part of order.indices(), computed on the device.
            index = torch.arange(batch_size, device=self.shard.device).add_(self.order.first + step * batch_size)
            index.clamp_(max=last)
            yield {
                "images": samples.images.index_select(0, index),
                "labels": samples.labels.index_select(0, index),
                "weights": self.order.weights(step),
                "num_samples": self.order.num_real(step),
            }


old_paths.watch(__name__)
