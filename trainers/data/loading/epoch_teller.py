"""Has Lightning tell each loader which epoch begins. Lightning looks at a loader's `sampler` alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lightning_fabric.utilities.data import _set_sampler_epoch

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Loader


class EpochTeller:
    """A loader as Lightning sees it: `sampler` is this object, so `set_epoch` gets to the loader itself.

    Where a resumed run goes on, Lightning asks for the iterator before it tells the epoch. So the loader's own is made
    when the first batch is asked for.
    """

    batch_sampler = None  # Lightning asks for it where a loader of an evaluation has a sampler.

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # such as state_dict, where it has one

    @property
    def sampler(self) -> EpochTeller:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        yield from self.loader

    def set_epoch(self, epoch: int) -> None:
        _set_sampler_epoch(self.loader, epoch)  # A sampler of the loader's own hears of it as before.
        self.loader.set_epoch(epoch)


def told_epochs(loader: Any) -> Any:
    """The loader for a Lightning Trainer, which calls its `set_epoch`; a loader without one, or None, as it is."""
    heard = getattr(loader, "sampler", None) is loader or not callable(getattr(loader, "set_epoch", None))
    return loader if heard else EpochTeller(loader)
