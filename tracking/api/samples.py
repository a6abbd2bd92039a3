"""What a training hands over, as numbers: how many samples a batch has, and what a metric's value says."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from conf.schema import ConfigError

NAN = torch.tensor(math.nan)
NARROW = {torch.float32: np.float32, torch.float16: np.float16}


def decimal(value: Any) -> float:
    """A metric's value as the shortest number that stands for it: 0.95, and not the 0.949999988 of a float32.

    95 right answers of 100 would else miss a target of 0.95.
    """
    if isinstance(value, torch.Tensor) and value.dtype in NARROW:
        value = NARROW[value.dtype](value.item())
    return float(str(value)) if isinstance(value, np.floating) else float(value)


def first_dimension(batch: Any) -> int | None:
    """The size of the first dimension of the first tensor in a batch: a tensor, or sequences and mappings of them.

    None where there is no tensor of one dimension or more.
    """
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.ndim else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for part in parts if (size := first_dimension(part)) is not None), None)


def count(value: Any, said_by: str) -> int:
    """A number of samples as `said_by` has given it. Raises ConfigError where it is no whole number from 0 on."""
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        number = -1
    if number < 0:
        raise ConfigError(f"{said_by}: {value!r} is no number of samples; give a whole number, 0 or more")
    return number


def processes_per_batch(strategy: Any, world_size: int) -> int:
    """How many processes train on the same batch, as those of tensor parallelism do; 1 where each has its own.

    A strategy says by its sampler's arguments into how many parts it divides the data.
    """
    sampler = getattr(strategy, "distributed_sampler_kwargs", None) or {}
    return max(1, world_size // int(sampler.get("num_replicas") or world_size))


def loss_of(outputs: Any) -> torch.Tensor:
    """A copy of a training step's loss; NaN where manual optimisation returns none."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss.detach().clone() if isinstance(loss, torch.Tensor) and loss.numel() == 1 else NAN


def number(batches: float) -> int:
    """How many batches; 0 for a loader that does not say."""
    return int(batches) if math.isfinite(batches) else 0
