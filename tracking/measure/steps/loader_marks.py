"""When a loader has given a batch, for a loop of somebody else's that does not say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import dataloader


@contextmanager
def batches(fetched: Callable[[], None]) -> Iterator[None]:
    """Call `fetched` after each batch of any DataLoader of this process."""
    iterator = dataloader._BaseDataLoaderIter
    given = iterator.__next__

    def noting(self: Any) -> Any:
        batch = given(self)
        fetched()
        return batch

    iterator.__next__ = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        iterator.__next__ = given  # type: ignore[method-assign]
