"""Lets a loader begin within an epoch, after the batches that were trained before an interruption."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable


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
