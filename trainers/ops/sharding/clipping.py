"""Gradients that are made shorter where all of them together are too long."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from trainers.ops.sharding import sharded

EPSILON = 1e-6


def clip(gradients: Iterable[torch.Tensor | None], most: float | torch.Tensor) -> None:
    """Scale gradients in place to a common norm of at most `most`. The host does not wait for it.

    Sharded gradients, all being so, have the norm of the whole ones: then a collective call.
    """
    given = [gradient for gradient in gradients if gradient is not None]
    parts = [sharded.local(gradient) for gradient in given]
    square = torch.stack([norm.square() for norm in torch._foreach_norm(parts)]).sum()
    if any(map(sharded.is_sharded, given)):
        dist.all_reduce(square)
    torch._foreach_mul_(parts, (most / (square.sqrt() + EPSILON)).clamp(max=1.0))
