"""Running statistics of batch normalisation: recomputed for the current weights, averaged over processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def renew_running_statistics(net: nn.Module, batches: Iterable[torch.Tensor]) -> None:
    """Set the running means and variances to the averages over these batches, for the current weights.

    A moving average lags behind weights that change quickly, and after a few steps it still has its first values. The
    method is Y. Wu and J. Johnson's "precise BN" (2021, arXiv:2105.07576). `net` has to be in training mode.
    """
    momenta = {layer: layer.momentum for layer in net.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)}
    for layer in momenta:
        layer.reset_running_stats()
        layer.momentum = None  # averages all batches alike
    for batch in batches:
        net(batch)
    for layer, momentum in momenta.items():
        layer.momentum = momentum


def average_running_statistics(net: nn.Module) -> None:
    """Average the running means and variances of batch normalisation over all processes. A collective call.

    Processes have seen different samples; without this, they would evaluate different models. Once per evaluation is
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
