"""That the host does not wait for the GPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def refused() -> Iterator[None]:
    """Whatever makes the host wait raises RuntimeError, and so does compiling once more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype", UserWarning)
        torch.cuda.set_sync_debug_mode("error")
    try:
        with torch._dynamo.config.patch(error_on_recompile=True):
            yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
