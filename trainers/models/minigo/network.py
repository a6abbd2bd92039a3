"""The network of MLPerf v0.5's MiniGo: a residual tower with a policy head and a value head.

The default sizes are the reference's (mlcommons/training, reinforcement/tensorflow/minigo/dual_net.py): 9x9, 32
filters, 9 blocks, a dense layer of 64. The architecture is AlphaGo Zero's (D. Silver et al. 2017,
doi:10.1038/nature24270).

For the search, batch normalisation is folded into convolutions, in the run's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from trainers.ops.compiling import raise_recompile_limit

PLANES = 17
POLICY_FILTERS, VALUE_FILTERS = 2, 1
MOMENTUM = 0.05  # of the running statistics; .95 in TensorFlow's convention, as in v0.6 (v0.5: .997)
Weights = list[torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the network: `board` is N, and `dense` is the width of the value head's hidden layer."""

    board: int = 9
    filters: int = 32
    blocks: int = 9
    dense: int = 64

    @property
    def num_moves(self) -> int:
        return self.board**2 + 1


class Outputs(NamedTuple):
    logits: torch.Tensor  # [B, N*N + 1], of the policy; the pass is last
    values: torch.Tensor  # [B], from -1 to 1: expected outcome for the player to move


class Convolution(nn.Module):
    """A convolution without a bias, followed by batch normalisation; `affine` if that has a scale and a shift.

    A head's has none, as in the reference. Its one or two channels feed all outputs, and a shift that makes them
    negative at every point would silence the head for good: ReLU then passes no gradient.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, affine: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        self.normalisation = nn.BatchNorm2d(outputs, momentum=MOMENTUM, affine=affine)
        nn.init.xavier_uniform_(self.convolution.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.normalisation(self.convolution(inputs))
        return features

    def folded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weight and bias of a convolution that equals both together in evaluation mode."""
        norm = self.normalisation
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = (norm.running_var + norm.eps).rsqrt() * (norm.weight if norm.affine else 1)
        shift = (norm.bias if norm.affine else 0) - norm.running_mean * scale
        return self.convolution.weight * scale[:, None, None, None], shift


class Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.first, self.second = Convolution(filters, filters, 3), Convolution(filters, filters, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(F.relu(self.first(inputs))) + inputs)


class GoNet(nn.Module):
    """Maps planes [B, 17, N, N] to Outputs."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        points, filters = sizes.board**2, sizes.filters
        self.stem = Convolution(PLANES, filters, 3)
        self.blocks = nn.ModuleList(Block(filters) for _ in range(sizes.blocks))
        self.policy = Convolution(filters, POLICY_FILTERS, 1, affine=False)
        self.to_moves = nn.Linear(POLICY_FILTERS * points, sizes.num_moves)
        self.value = Convolution(filters, VALUE_FILTERS, 1, affine=False)
        self.hidden = nn.Linear(VALUE_FILTERS * points, sizes.dense)
        self.to_value = nn.Linear(sizes.dense, 1)

    def forward(self, planes: torch.Tensor) -> Outputs:
        features = F.relu(self.stem(planes))
        for block in self.blocks:
            features = block(features)
        logits = self.to_moves(F.relu(self.policy(features)).flatten(1))
        hidden = F.relu(self.hidden(F.relu(self.value(features)).flatten(1)))
        return Outputs(logits.float(), self.to_value(hidden).float().tanh()[:, 0])

    def convolutions(self) -> Iterator[Convolution]:
        """Yield the convolutions from the stem to the last block, then those of the policy and the value."""
        yield from (part for part in self.modules() if isinstance(part, Convolution))


def losses(
    net: GoNet, planes: torch.Tensor, policies: torch.Tensor, outcomes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each position's cross entropy of the policy and squared error of the value, float32 [B]."""
    logits, values = net(planes)
    return -(policies * logits.log_softmax(dim=1)).sum(dim=1), (values - outcomes) ** 2


def training_loss(
    net: GoNet, planes: torch.Tensor, policies: torch.Tensor, outcomes: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return the weighted sum of both losses over positions."""
    cross_entropy, squared_error = losses(net, planes, policies, outcomes)
    total: torch.Tensor = ((cross_entropy + squared_error) * weights).sum()
    return total


class Predictor(nn.Module):
    """Maps planes, float32 [n, 17, N, N], to the probabilities of moves, float32 [n, N*N + 1]."""

    def __init__(self, net: GoNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        probabilities: torch.Tensor = self.net(planes)[0].softmax(dim=1)
        return probabilities


def flops(sizes: Sizes) -> int:
    """Return the FLOPs of one evaluation, 2 for each product with a weight; 27.7 million at the default sizes."""
    points, filters = sizes.board**2, sizes.filters
    tower = 9 * filters * (PLANES + 2 * sizes.blocks * filters)
    heads = filters * (POLICY_FILTERS + VALUE_FILTERS)
    dense = POLICY_FILTERS * points * sizes.num_moves + VALUE_FILTERS * points * sizes.dense + sizes.dense
    return 2 * (points * (tower + heads) + dense)


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
