"""Numbers from a training's objects: samples of a batch, values of metrics, losses, processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from conf.schema import ConfigError

NAN = torch.tensor(math.nan)
NUMPY_TYPES = {torch.float32: np.float32, torch.float16: np.float16}


def decimal(value: Any, source: str = "") -> float:
    """A metric's value as the shortest decimal of its type: 0.95, not the 0.949999988 of a float32.

    Otherwise 95 right answers out of 100 would miss a target of 0.95. Raises ConfigError that names `source`.
    """
    if isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype in NUMPY_TYPES:
        value = NUMPY_TYPES[value.dtype](value.item())
    try:
        return float(str(value)) if isinstance(value, np.floating) else float(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor with several numbers
        kind = "None" if value is None else f"of the type {type(value).__name__}"
        raise ConfigError(f"{source}: is {kind}, not a number. Next: give one number, such as 0.95") from None


def first_dimension(batch: Any) -> int | None:
    """The size of the first dimension of the first tensor in a batch; None without a tensor of at least one dimension.

    A batch is a tensor, or nested sequences and mappings of tensors.
    """
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.ndim else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for part in parts if (size := first_dimension(part)) is not None), None)


def processes_per_batch(strategy: Any, world_size: int) -> int:
    """How many processes train on the same batch, as in tensor parallelism; 1 if each has its own batch.

    The strategy's sampler arguments have the number of parts into which the data is divided.
    """
    sampler = getattr(strategy, "distributed_sampler_kwargs", None) or {}
    return max(1, world_size // int(sampler.get("num_replicas") or world_size))


def loss_of(outputs: Any) -> torch.Tensor:
    """A copy of a training step's loss; NaN if manual optimisation returns no loss."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss.detach().clone() if isinstance(loss, torch.Tensor) and loss.numel() == 1 else NAN


def known_batches(num_batches: float) -> int:
    """The number of batches; 0 for a loader of unknown length."""
    return int(num_batches) if math.isfinite(num_batches) else 0
