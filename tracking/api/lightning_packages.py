"""Lightning comes as two packages, `pytorch_lightning` and `lightning`, with a class each for the same thing."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytorch_lightning import Callback as Callback

OLD, NEW = "pytorch_lightning", "lightning.pytorch"


def callback_class() -> type:
    """A callback of each package that the script has imported: LightningCLI takes those of its own package alone."""
    names = [name for name in (OLD, NEW) if name in sys.modules] or [OLD]
    return type("Callback", tuple(importlib.import_module(name).Callback for name in names), {})


if not TYPE_CHECKING:
    Callback = callback_class()
