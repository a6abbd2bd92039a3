"""Makes Lightning call a loader's `set_epoch`; Lightning only calls that of a loader's `sampler`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lightning_fabric.utilities.data import _set_sampler_epoch

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Loader


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
        _set_sampler_epoch(self.loader, epoch)  # The loader may have a sampler of its own.
        self.loader.set_epoch(epoch)


def with_epochs(loader: Any) -> Any:
    """Return the loader such that a Lightning Trainer calls its `set_epoch`; None, or one without it, unchanged."""
    complete = getattr(loader, "sampler", None) is loader or not callable(getattr(loader, "set_epoch", None))
    return loader if complete else EpochTeller(loader)
