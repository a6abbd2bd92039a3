"""Clips gradients by their global norm, sharded or not."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from trainers.ops.sharding import sharded

EPSILON = 1e-6


def clip(gradients: Iterable[torch.Tensor | None], most: float | torch.Tensor) -> None:
    """Scale gradients in place to a global norm of at most `most`, without waiting for the device.

    Gradients are all sharded or all whole. If sharded, this is a collective call: the norm covers the whole gradients.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    parts = [sharded.local(gradient) for gradient in present]
    square = torch.stack([norm.square() for norm in torch._foreach_norm(parts)]).sum()
    if any(map(sharded.is_sharded, present)):
        dist.all_reduce(square)
    torch._foreach_mul_(parts, (most / (square.sqrt() + EPSILON)).clamp(max=1.0))
