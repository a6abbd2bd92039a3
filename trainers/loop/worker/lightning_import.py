"""Imports Lightning without slow packages that are not needed, because every run waits for this import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError

from lightning_utilities.core import imports

# Lightning imports torchmetrics, which imports these, if installed, for plots and audio metrics. They take a third of
# Lightning's import time (4 of 14 s on two cores).
SLOW = ("matplotlib", "scipy", "transformers")


@contextmanager
def as_if_missing(*names: str) -> Iterator[None]:
    """Hide packages from imports in the block, unless they are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    version = imports._version

    def visible_version(name: str) -> str:
        if name in hidden:
            raise PackageNotFoundError(name)
        return version(name)

    imports._version = visible_version  # type: ignore[assignment]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # None makes Python's import raise ModuleNotFoundError.
    try:
        yield
    finally:
        imports._version = version
        for name in hidden:
            del sys.modules[name]
