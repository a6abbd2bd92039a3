"""Batch normalisation over several processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def average_running_statistics(net: nn.Module) -> None:
    """Average the running means and variances of batch normalisation over all processes. A collective call.

    Each process has seen other samples; without this, each would evaluate another model. Once per evaluation is
    enough. DDP's broadcast_buffers would send them at every step, and only those of rank 0.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    layers = [layer for layer in net.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    buffers = [buffer for layer in layers for buffer in layer.buffers() if buffer.is_floating_point()]
    if not buffers:
        return
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for buffer, mean in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(mean.view_as(buffer))
