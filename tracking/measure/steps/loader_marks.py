"""Note when a DataLoader returns a batch, for training loops that do not report it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import dataloader


@contextmanager
def batches(on_batch: Callable[[], None]) -> Iterator[None]:
    """Call `on_batch` after each batch of any DataLoader of this process."""
    iterator = dataloader._BaseDataLoaderIter
    original = iterator.__next__

    def next_and_report(self: Any) -> Any:
        batch = original(self)
        on_batch()
        return batch

    iterator.__next__ = next_and_report  # type: ignore[method-assign]
    try:
        yield
    finally:
        iterator.__next__ = original  # type: ignore[method-assign]
