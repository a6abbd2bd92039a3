"""Where in an epoch a loader begins: behind the batches that were trained before an interruption."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable


@runtime_checkable
class Positionable(Protocol):
    """What a run with checkpoint_every_steps asks of its loader of training batches."""

    def begin_behind(self, num_batches: int) -> None: ...  # leave so many out of the epoch that is begun next


class Positioned:
    """A loader of training batches whose next epoch can begin behind some of them, none of which is made.

    A batch follows from seed, epoch and its place alone, so how many were trained is the whole position. What was made
    ahead of that and not trained is made again.
    """

    _num_skipped = 0
    batch_sampler = None  # Lightning asks for it where a loader of an evaluation has a sampler.

    @property
    def sampler(self) -> Self:
        """Lightning sets the epoch of a loader's `sampler` (lightning_fabric.utilities.data._set_sampler_epoch)."""
        return self

    def begin_behind(self, num_batches: int) -> None:
        """Leave out so many batches of the epoch that is begun next; later epochs are whole."""
        self._num_skipped = num_batches

    def first_step(self) -> int:
        """The place of the epoch's first batch; asked once an epoch, when that is begun."""
        first, self._num_skipped = self._num_skipped, 0
        return first
