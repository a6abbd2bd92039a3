"""The interface between data and models: batches, loaders and datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from trainers.data.coco import DetectionEvaluator, IouType

# A batch is a dict of tensors and one int, `num_samples`: the number of this process's real samples in it. The last
# batch of an epoch is padded with samples of weight zero, so that shapes never change. A batch of text also has
# `num_tokens`: the numbers of source and target tokens of its real samples.
Batch = dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """This process's share of the data, and its device."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def num_local(self) -> int:
        """Return the number of the run's processes on this machine, from torchrun; without it, of all processes."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))


class Loader(Protocol):
    """Yields the batches of one process. It reads nothing before the first batch is requested."""

    def __len__(self) -> int: ...  # batches in an epoch, known without reading the data
    def __iter__(self) -> Iterator[Batch]: ...
    def set_epoch(self, epoch: int) -> None: ...  # called before each epoch; with the seed it decides the order


class Data(Protocol):
    """A dataset as a workload sees it. Its constructor reads no data: the clock starts when data are first read."""

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """Return generated batches, one for each shape of real ones, to compile and warm up on before the clock."""
        ...

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> Loader:
        """Return the loader that visits every training sample exactly once an epoch over all processes."""
        ...

    def eval_loader(self, batch_size: int, shard: Shard) -> Loader | None:
        """Return the loader of validation samples, each exactly once over all processes; None without any."""
        ...

    def test_loader(self, batch_size: int, shard: Shard) -> Loader | None:
        """Return the loader of test samples, for a final figure off the clock; None without any."""
        ...


class ClassificationData(Data, Protocol):
    """Data for classifiers."""

    @property
    def name(self) -> str: ...  # of the dataset, for messages

    @property
    def num_classes(self) -> int: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...

    @property
    def image_size(self) -> tuple[int, int]: ...  # pixels, height and width of the images in the batches


class DetectionData(Data, Protocol):
    """Data for detectors."""

    @property
    def num_classes(self) -> int: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...

    def evaluator(self, iou_types: tuple[IouType, ...]) -> DetectionEvaluator | None:
        """Return the evaluator that computes metrics of detections in the validation images; None without any."""
        ...


@runtime_checkable
class Viewable(Protocol):
    """Data whose images can be cropped in several ways; a module chooses one by its `view`."""

    def viewed(self, view: Any) -> Data:
        """Return the same data, cropped as `view` says. It reads nothing and does not change this object."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """Data whose training samples come in groups that stay together; batch sizes are multiples of a group's size."""

    @property
    def group_size(self) -> int: ...


@runtime_checkable
class InTokens(Protocol):
    """Data whose batches are sized in tokens, not in samples: `batch_size` counts tokens."""

    @property
    def num_train(self) -> int: ...  # samples in the training set

    @property
    def num_eval(self) -> int: ...  # samples of an evaluation; 0 without one

    @property
    def num_train_tokens(self) -> int: ...  # tokens that the training set takes in batches

    @property
    def longest(self) -> int: ...  # tokens of the longest sample, the smallest possible batch


@runtime_checkable
class Recorded(Protocol):
    """Data that report more to a run than their version."""

    def facts(self) -> dict[str, str]:
        """Return tags, whose names begin with `data.`."""
        ...

    def write_record(self, run_dir: Path) -> None:
        """Write files into the run's folder, as artifacts; called on rank 0, off the clock."""


@runtime_checkable
class Versioned(Protocol):
    """Data with a version, which tells whether two runs used the same; it becomes the tag `data.version`."""

    def version(self) -> str:
        """Return a short digest of the content; called after the clock has stopped, so it may take seconds."""
        ...
