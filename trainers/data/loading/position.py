"""Lets a loader begin within an epoch, and be told the number of the epoch by Lightning.

A resumed run begins after the batches that were trained before its interruption. Lightning calls `set_epoch` only on a
loader's `sampler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Loader


@runtime_checkable
class Positionable(Protocol):
    """A loader of training batches that a run with checkpoint_every_steps can use."""

    def begin_behind(self, num_batches: int) -> None: ...  # skip so many batches of the next epoch


class Positioned:
    """A loader whose next epoch can skip batches without making them.

    Seed, epoch and place determine a batch, so the number of trained batches is the whole position. Batches that were
    prefetched but not trained are made again.
    """

    _num_skipped = 0
    batch_sampler = None  # Lightning reads it if an evaluation's loader has a sampler.

    @property
    def sampler(self) -> Self:
        """Return this loader: Lightning sets the epoch of a loader's `sampler` (its _set_sampler_epoch)."""
        return self

    def begin_behind(self, num_batches: int) -> None:
        """Skip so many batches of the next epoch; later epochs are complete."""
        self._num_skipped = num_batches

    def first_step(self) -> int:
        """Return the place of the epoch's first batch; to be called once at the start of an epoch."""
        first, self._num_skipped = self._num_skipped, 0
        return first


class EpochTeller:
    """Wraps a loader for Lightning: its `sampler` is this object, which forwards `set_epoch` to the loader.

    In a resumed run, Lightning makes the iterator before it sets the epoch. So the loader's iterator is made when the
    first batch is requested.
    """

    batch_sampler = None  # Lightning reads it if an evaluation's loader has a sampler.

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # such as state_dict

    @property
    def sampler(self) -> EpochTeller:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        yield from self.loader

    def set_epoch(self, epoch: int) -> None:
        from lightning_fabric.utilities.data import (
            _set_sampler_epoch,
        )  # Here: loaders without Lightning need no import.

        _set_sampler_epoch(self.loader, epoch)  # The loader may have a sampler of its own.
        self.loader.set_epoch(epoch)


def with_epochs(loader: Any) -> Any:
    """Return the loader such that a Lightning Trainer calls its `set_epoch`; None, or one without it, unchanged."""
    complete = getattr(loader, "sampler", None) is loader or not callable(getattr(loader, "set_epoch", None))
    return loader if complete else EpochTeller(loader)
