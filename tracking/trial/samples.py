"""How many samples a batch has, of which nothing else is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def first_dimension(batch: Any) -> int | None:
    """The size of the first dimension of the first tensor in a batch: a tensor, or sequences and mappings of them.

    None where there is no tensor of one dimension or more.
    """
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.ndim else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for part in parts if (size := first_dimension(part)) is not None), None)
