"""Evaluates a network for the search: batch normalisation is folded into convolutions, in the run's dtype."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from trainers.models.minigo.network import GoNet, Outputs
from trainers.ops.compiling import raise_recompile_limit

Weights = list[torch.Tensor]


class Evaluator:
    """Maps planes to Outputs. `take` sets the weights in place, so that a captured CUDA graph stays valid."""

    def __init__(self, net: GoNet, dtype: torch.dtype = torch.float32, compile: bool = False) -> None:
        self.dtype = dtype
        self._weights = [tensor.clone() for tensor in folded(net, dtype)]
        device = self._weights[0].device
        if compile:
            raise_recompile_limit(16)  # Each search has two shapes: its roots, and the leaves of a step.
        self._evaluate: Callable[..., Outputs] = torch.compile(evaluate, dynamic=False) if compile else evaluate
        self._format = torch.channels_last if device.type == "cuda" else torch.contiguous_format

    def take(self, net: GoNet) -> None:
        """Use the weights of this network from now on."""
        for weight, tensor in zip(self._weights, folded(net, self.dtype), strict=True):
            weight.copy_(tensor)

    def __call__(self, planes: torch.Tensor) -> Outputs:
        """Evaluate planes, which have the evaluator's `dtype`."""
        # The warm-up runs under the Trainer's autocast and self-play does not: with autocast on, both would compile.
        with torch.autocast(planes.device.type, enabled=False):
            return self._evaluate(planes.contiguous(memory_format=self._format), self._weights)


@torch.no_grad()
def folded(net: GoNet, dtype: torch.dtype) -> Weights:
    """Return weight and bias of every layer, in the order of `evaluate`."""
    weights: Weights = []
    for layer in net.convolutions():
        weight, bias = (tensor.to(dtype) for tensor in layer.folded())
        on_gpu = weight.device.type == "cuda"
        weights += [weight.contiguous(memory_format=torch.channels_last) if on_gpu else weight, bias]
    for dense in (net.to_moves, net.hidden, net.to_value):
        weights += [dense.weight.to(dtype), dense.bias.to(dtype)]
    return [tensor.detach() for tensor in weights]


def evaluate(planes: torch.Tensor, weights: Weights) -> Outputs:
    """Compute what GoNet computes in evaluation mode, with the weights of `folded`."""
    pairs = list(zip(weights[::2], weights[1::2], strict=True))
    stem, *tower = pairs[:-5]
    policy, value, to_moves, hidden, to_value = pairs[-5:]
    features = F.relu(F.conv2d(planes, *stem, padding=1))
    for first, second in zip(tower[::2], tower[1::2], strict=True):
        inner = F.relu(F.conv2d(features, *first, padding=1))
        features = F.relu(F.conv2d(inner, *second, padding=1) + features)
    logits = F.linear(F.relu(F.conv2d(features, *policy)).flatten(1), *to_moves)
    inner = F.relu(F.linear(F.relu(F.conv2d(features, *value)).flatten(1), *hidden))
    return Outputs(logits.float(), F.linear(inner, *to_value).float().tanh()[:, 0])
