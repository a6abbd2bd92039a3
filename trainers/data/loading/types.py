"""What data and models agree on: batches, loaders, and what a dataset has to answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from trainers.data.coco import DetectionEvaluator, IouType

# A batch is a dict of tensors and one int, `num_samples`: how many real samples of this process it holds (the last
# batch of an epoch is filled up, so that shapes never change, and what fills it has weight zero). One of text also has
# `num_tokens`: how many tokens its real samples have, of source and target.
Batch = dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """Which part of the data this process works on, and where it puts it."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def num_local(self) -> int:
        """The run's processes on this machine, which torchrun counts; without it all of them."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))


class Loader(Protocol):
    """Yields the batches of one process. Nothing is read before the first batch is asked for."""

    def __len__(self) -> int: ...  # batches an epoch, known without touching the data
    def __iter__(self) -> Iterator[Batch]: ...
    def set_epoch(
        self, epoch: int
    ) -> None: ...  # called before each epoch; with the seed, decides what comes in what order


class Data(Protocol):
    """A dataset as a workload sees it. Making one reads nothing: the clock starts at the first touch of the data."""

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """Generated batches, one of each shape that real ones have, to compile and warm up on before the clock."""
        ...

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> Loader:
        """Batches that visit every training sample exactly once an epoch over all processes."""
        ...

    def eval_loader(self, batch_size: int, shard: Shard) -> Loader | None:
        """The validation samples, each exactly once over all processes; None where there is nothing to evaluate."""
        ...

    def test_loader(self, batch_size: int, shard: Shard) -> Loader | None:
        """Samples kept for a final figure, off the clock; None where the dataset has none."""
        ...


class ClassificationData(Data, Protocol):
    """What a classifier is made for."""

    @property
    def name(self) -> str: ...  # the dataset's, for messages

    @property
    def num_classes(self) -> int: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...

    @property
    def image_size(self) -> tuple[int, int]: ...  # pixels, height and width of the images in the batches


class DetectionData(Data, Protocol):
    """What a detector is made for."""

    @property
    def num_classes(self) -> int: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...

    def evaluator(self, iou_types: tuple[IouType, ...]) -> DetectionEvaluator | None:
        """What turns the detections in the validation images into metrics; None where nothing is evaluated."""
        ...


@runtime_checkable
class Viewable(Protocol):
    """Data whose images can be cut in more than one way; a module says in which by its `view`."""

    def viewed(self, view: Any) -> Data:
        """The same data, cut as `view` says. Reads nothing, and leaves this object as it is."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """Data whose training samples come in groups that are never parted; batch sizes are multiples of a group's."""

    @property
    def group_size(self) -> int: ...


@runtime_checkable
class InTokens(Protocol):
    """Data whose batches have room for so many tokens, and not for so many samples: `batch_size` counts tokens."""

    @property
    def num_train(self) -> int: ...  # samples in the training set

    @property
    def num_eval(self) -> int: ...  # an evaluation's samples; 0 where nothing is evaluated

    @property
    def num_train_tokens(self) -> int: ...  # the room that the training set takes

    @property
    def longest(self) -> int: ...  # the smallest batch that can be


@runtime_checkable
class Recorded(Protocol):
    """Data of which a run keeps more than their version."""

    def facts(self) -> dict[str, str]:
        """Tags, `data.` and a name."""
        ...

    def write_record(self, run_dir: Path) -> None:
        """Write files of its own into the run's folder, as artifacts; called on rank 0, off the clock."""


@runtime_checkable
class Versioned(Protocol):
    """Data that can tell whether it is the same as another run's; becomes the tag `data.version`."""

    def version(self) -> str:
        """A short digest of what it holds. Asked for when the clock has stopped, so it may take seconds."""
        ...
