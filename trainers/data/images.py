"""Image data that fits into device memory: read once, when the first batch is asked for, and served from the device.

A batch costs two gathers on the device and nothing of the host: no copy, no worker process, no synchronisation.
Shapes never change, so one compiled graph serves a whole run; what fills up the last batch has weight zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from conf.schema import ConfigError

if TYPE_CHECKING:
    from trainers.workload import Batch, Shard

Source = Literal["train", "test"]  # what a dataset's files hold
Part = Literal["train", "eval", "test"]  # eval is split off the train source
# Images uint8 [n, height, width] and integer labels [n].
Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Samples:
    """One part of the data, on the device: images uint8 [n, 1, height, width] and labels int64 [n]."""

    images: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class ImageData:
    """Grey-scale images in memory; implements trainers.workload.Data.

    The sizes are declared, so that lengths are known without reading; `read("train")` returns `num_train + num_eval`
    samples and `read("test")` returns `num_test` (0: there is no test set). Reading checks what was declared and
    raises ConfigError where it does not hold.
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

    def example_batch(self, batch_size: int, device: torch.device) -> Batch:
        """A generated full batch. Has a generator of its own: warming up must not move the run's random numbers."""
        generator = torch.Generator().manual_seed(0)
        shape = (batch_size, 1, *self.image_size)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, self.num_classes, (batch_size,), generator=generator)
        return {
            "images": images.to(device),
            "labels": labels.to(device),
            "weights": torch.full((batch_size,), 1.0 / batch_size, device=device),
            "num_samples": batch_size,
        }

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> TrainLoader:
        return TrainLoader(self, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> EvalLoader:
        return EvalLoader(self, "eval", self.num_eval, batch_size, shard)

    def test_loader(self, batch_size: int, shard: Shard) -> EvalLoader | None:
        return EvalLoader(self, "test", self.num_test, batch_size, shard) if self.num_test else None

    def samples(self, part: Part, device: torch.device) -> Samples:
        """The part on the device; the first call reads the files, which is the first touch of the data."""
        if (part, device) not in self._cache:
            for name, (images, labels) in self._read_parts("test" if part == "test" else "train").items():
                self._cache[name, device] = Samples(
                    torch.from_numpy(images).unsqueeze(1).to(device),
                    torch.from_numpy(labels.astype(np.int64)).to(device),
                )
        return self._cache[part, device]

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
                f"dataset={self.name}: the {source} set holds images {images.dtype} {list(images.shape)} and labels"
                f" {list(labels.shape)}, expected uint8 {list(expected)} and {list(expected[:1])};"
                " put the dataset's original files in place"
            )
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise ConfigError(
                f"dataset={self.name}: the {source} set's labels run from {labels.min()} to {labels.max()}, expected 0"
                f" to {self.num_classes - 1}; put the dataset's original files in place"
            )


def split(num_samples: int, num_held_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the samples kept and held out: the same in every run, whatever its seed, so that runs compare."""
    # RandomState's streams are frozen (NEP 19): the split is the same under any stack's NumPy.
    order = np.random.RandomState(0).permutation(num_samples)
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


class TrainLoader:
    """One process's share of the shuffled training samples, each of which counts exactly once an epoch.

    One permutation an epoch, the same on every process, is cut into global batches of `batch_size * world_size`, so
    the global batches do not depend on the number of processes. The last one is filled up from the permutation's
    start. A real sample weighs world_size / (real samples of the global batch), filler 0: DDP averages gradients over
    the processes, which makes a weighted sum of losses on each the exact mean over the global batch's real samples.
    """

    def __init__(self, data: ImageData, batch_size: int, seed: int, shard: Shard) -> None:
        assert batch_size > 0
        assert 0 <= shard.rank < shard.world_size
        self.data, self.batch_size, self.seed, self.shard = data, batch_size, seed, shard
        self.epoch = 0
        self._pinned: torch.Tensor | None = None

    def __len__(self) -> int:
        return -(-self.data.num_train // self._global_batch())

    @property
    def sampler(self) -> TrainLoader:
        """Lightning sets the epoch of a loader's `sampler` (lightning_fabric.utilities.data._set_sampler_epoch)."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator: Lightning calls iter() while it sets up, and nothing may be read before the first next().
        samples = self.data.samples("train", self.shard.device)
        order = self._order()
        num_last = self.data.num_train - (len(self) - 1) * self._global_batch()
        full, last = self._weights(self._global_batch()), self._weights(num_last)
        for step in range(len(self)):
            is_last = step == len(self) - 1
            yield {
                "images": samples.images.index_select(0, order[step]),
                "labels": samples.labels.index_select(0, order[step]),
                "weights": last if is_last else full,
                "num_samples": self._num_real(num_last) if is_last else self.batch_size,
            }

    def _global_batch(self) -> int:
        return self.batch_size * self.shard.world_size

    def _num_real(self, num_global: int) -> int:
        """Real samples of this process in a global batch that holds `num_global`; they come before the filler."""
        return len(range(self.shard.rank, num_global, self.shard.world_size))

    def _order(self) -> torch.Tensor:
        """This process's sample indices of the epoch, int64 [steps, batch_size], on the device."""
        # RandomState's streams are frozen (NEP 19), so that the order is the same on every stack; and unlike PyTorch
        # it wakes no thread pool, which takes tens of milliseconds on a large machine.
        order = np.random.RandomState([self.seed, self.epoch]).permutation(self.data.num_train)
        # Wraps around as often as it must. Processes take turns in a global batch, so that filler spreads evenly.
        order = np.resize(order, (len(self), self.batch_size, self.shard.world_size))
        own = torch.from_numpy(np.ascontiguousarray(order[:, :, self.shard.rank], dtype=np.int64))
        if self.shard.device.type != "cuda":
            return own
        if self._pinned is None:  # once, since pinning takes milliseconds; a copy from elsewhere waits for the device
            self._pinned = torch.empty_like(own, pin_memory=True)
        return self._pinned.copy_(own).to(self.shard.device, non_blocking=True)

    def _weights(self, num_global: int) -> torch.Tensor:
        real = torch.arange(self.batch_size, device=self.shard.device) < self._num_real(num_global)
        return real * (self.shard.world_size / num_global)


class EvalLoader:
    """One process's contiguous share of a fixed part of the data; over all processes each sample counts exactly once.

    Every process yields the same number of batches, because collectives run in step, even where it has no real sample
    left. A real sample weighs 1, filler 0.
    """

    def __init__(self, data: ImageData, part: Part, num_samples: int, batch_size: int, shard: Shard) -> None:
        assert batch_size > 0 < num_samples
        assert 0 <= shard.rank < shard.world_size
        self.data, self.part, self.num_samples = data, part, num_samples
        self.batch_size, self.shard = batch_size, shard
        self.share = -(-num_samples // shard.world_size)

    def __len__(self) -> int:
        return -(-self.share // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """The order is always the same."""

    def __iter__(self) -> Iterator[Batch]:
        samples = self.data.samples(self.part, self.shard.device)
        start = min(self.shard.rank * self.share, self.num_samples)
        stop = min(start + self.share, self.num_samples)
        for first in range(start, start + len(self) * self.batch_size, self.batch_size):
            index = torch.arange(first, first + self.batch_size, device=self.shard.device)
            index_in_range = index.clamp(max=self.num_samples - 1)
            yield {
                "images": samples.images.index_select(0, index_in_range),
                "labels": samples.labels.index_select(0, index_in_range),
                "weights": (index < stop).float(),
                "num_samples": max(0, min(stop - first, self.batch_size)),
            }
