"""Batch normalisation, ReLU and a 3x3 maximum pool as one layer.

Behind the first convolution of a ResNet, the plain layers read or write the largest maps ten times a step. In compiled
code on a GPU it is five times: Triton kernels normalise while they pool, in both passes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class NormReluPool(nn.BatchNorm2d):
    """max_pool2d(relu(norm(maps)), 3, stride=2, padding=1), with the parameters of `norm`, so that weights fit.

    16-bit maps are normalised in float32 and rounded once. The plain layers compute it on a CPU, without the compiler,
    in an evaluation, and without a momentum.
    """

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Map [n, C, height, width] to [n, C, (height + 1) // 2, (width + 1) // 2]."""
        if not (torch.compiler.is_compiling() and maps.is_cuda and self.training) or self.momentum is None:
            return F.max_pool2d(F.relu(super().forward(maps)), 3, stride=2, padding=1)
        variance, mean = torch.var_mean(maps.detach().float(), dim=(0, 2, 3), correction=0)
        self._update(mean, variance, maps.numel() // maps.shape[1])
        pooled: torch.Tensor = _pooled(maps, self.weight, self.bias, mean, (variance + self.eps).rsqrt())[0]
        return pooled

    @torch.no_grad()
    def _update(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        """Update the running statistics as PyTorch does: the variance there is the unbiased one."""
        running: Any = self
        running.num_batches_tracked.add_(1)
        running.running_mean.lerp_(mean, running.momentum)
        running.running_var.lerp_(variance * (count / (count - 1)), running.momentum)


@torch.library.custom_op("timetrial::norm_relu_pool", mutates_args=(), device_types="cuda")
def _pooled(
    maps: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pooled maps, and the place of each window's maximum, from 0 to 8, or 9 if ReLU makes it zero."""
    from trainers.ops.stem import norm_relu_pool_triton

    out, places = pooled_like(maps, maps.dtype), pooled_like(maps, torch.int8)
    norm_relu_pool_triton.pool(_channels_last(maps), weight, bias, mean, rstd, out, places)
    return out, places


@torch.library.custom_op("timetrial::norm_relu_pool_backward", mutates_args=(), device_types="cuda")
def _gradients(
    gradient: torch.Tensor,
    maps: torch.Tensor,
    places: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of maps, weight and bias. Mean and deviation count as functions of the maps."""
    from trainers.ops.stem import norm_relu_pool_triton

    return norm_relu_pool_triton.gradients(_channels_last(gradient), _channels_last(maps), places, weight, mean, rstd)


def _channels_last(maps: torch.Tensor) -> torch.Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


@_pooled.register_fake
def _(maps: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return pooled_like(maps, maps.dtype), pooled_like(maps, torch.int8)


@_gradients.register_fake
def _(gradient: torch.Tensor, maps: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
    channels = maps.new_empty(maps.shape[1], dtype=torch.float32)
    return torch.empty_like(maps, memory_format=torch.channels_last), channels, torch.empty_like(channels)


def pooled_like(maps: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return an empty tensor for the pooled maps, channels_last."""
    n, channels, height, width = maps.shape
    size = (n, channels, (height + 1) // 2, (width + 1) // 2)
    return torch.empty(size, dtype=dtype, device=maps.device, memory_format=torch.channels_last)


def _keep(ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    maps, weight, _, mean, rstd = inputs
    ctx.save_for_backward(maps, output[1], weight, mean, rstd)


def _backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    return (*_gradients(gradient, *ctx.saved_tensors), None, None)


_pooled.register_autograd(_backward, setup_context=_keep)
