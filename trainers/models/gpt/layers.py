"""A layer of the language model: its computation, and its parameters.

A layer leaves its last addition to the next layer: sum and normalisation are then one kernel, although the compiler
sees one layer at a time. All layers share one compiled function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

BASE = 1024.0  # wave length of the slowest rotation, in tokens, over 2 pi
INITIAL_VARIANCE = 0.33  # variance of a weight times its number of inputs
DRAWN_ON_DEVICE = 1_000_000_000  # From so many parameters on, the GPU draws them: a CPU draws 100 million a second.


Multiply = Callable[..., torch.Tensor]  # a linear layer: `linear`, or fp8's
Cast = Callable[..., list[Any]]  # what `Multiply` may take in the place of these weights


@dataclass(frozen=True)
class Sizes:
    layers: int = 12
    width: int = 768
    heads: int = 6
    vocabulary: int = 50304
    hidden: float = 4  # times the width
    kv_heads: int | None = None  # heads of keys and values; None for as many as of queries

    @property
    def hidden_units(self) -> int:
        return round(self.hidden * self.width)


def rotations(length: int, width: int) -> torch.Tensor:
    """Return cosines and sines by position, float32 [2, length, 1, width / 2]; the second half does not rotate."""
    rates = (1 / BASE) ** torch.linspace(0, 1, width // 4, dtype=torch.float32)
    return turns_at(torch.cat((rates, torch.zeros(width // 4))), length)


def turns_at(rates: torch.Tensor, length: int) -> torch.Tensor:
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)[:, None]
    return torch.stack((angles.cos(), angles.sin()))


def rotated(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotate x, [n, length, heads, width], by the angles of each position."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = turns
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1).to(x.dtype)


def norm(x: torch.Tensor, gains: torch.Tensor | None = None) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], None if gains is None else gains.to(x.dtype))


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Apply a linear layer to [..., inputs]. The weight is [..., inputs], with one output for each row."""
    return F.linear(x, weight.flatten(0, -2).to(x.dtype), None if bias is None else bias.flatten().to(x.dtype))


def layer(
    x: torch.Tensor, added: torch.Tensor, turns: torch.Tensor, heads: int, scale: float, multiply: Multiply,
    norm1: torch.Tensor, parts: torch.Tensor, parts_bias: torch.Tensor, out: torch.Tensor, out_bias: torch.Tensor,
    norm2: torch.Tensor, widen: torch.Tensor, widen_bias: torch.Tensor, narrow: torch.Tensor, narrow_bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the residual stream, [n, length, width], and the layer's last output, which the next layer adds to it.

    It is a function of tensors, not a module, so that the compiler makes one function for all layers.
    """
    x = x + added
    split = multiply(norm(x, norm1), parts, parts_bias).unflatten(2, (3, heads, -1))
    query, key, value = split.unbind(2)
    query, key = rotated(norm(query), turns), rotated(norm(key), turns)
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
    x = x + multiply(attended.transpose(1, 2).flatten(2), out, out_bias)
    hidden = multiply(norm(x, norm2), widen, widen_bias).relu().square()
    return x, multiply(hidden, narrow, narrow_bias)


class Weights(nn.Module):
    """The parameters of a layer. `parts` stacks the matrices [width, width] of query, key and value."""

    function: Callable[..., Any] = staticmethod(layer)
    turns = staticmethod(rotations)
    casts: list[Any] | None = None  # of the matrices, while they are kept

    def __init__(self, sizes: Sizes, on_device: bool = False) -> None:
        super().__init__()
        self.on_device = on_device
        width, hidden = sizes.width, sizes.hidden_units
        self.norm1, self.norm2 = empty(width), empty(width)
        self.parts, self.parts_bias = empty(3, width, width), empty(3, width)
        self.out, self.out_bias = empty(width, width), empty(width)
        self.widen, self.widen_bias = empty(hidden, width), empty(hidden)
        self.narrow, self.narrow_bias = empty(width, hidden), empty(width)
        self.draw()

    @torch.no_grad()
    def draw(self) -> None:
        """Initialize the parameters."""
        for parameter in (self.parts, self.widen):
            draw(parameter, (INITIAL_VARIANCE / parameter.shape[-1]) ** 0.5, self.on_device)
        for parameter in (self.norm1, self.norm2):
            parameter.fill_(1)
        for parameter in (self.parts_bias, self.out, self.out_bias, self.widen_bias, self.narrow, self.narrow_bias):
            parameter.zero_()

    def forward(
        self, x: torch.Tensor, added: torch.Tensor, turns: torch.Tensor, heads: int, scale: float, multiply: Multiply,
        function: Callable[..., tuple[torch.Tensor, torch.Tensor]], again: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Call `function`: `layer`, compiled or not. `again` recomputes it in the backward pass."""
        if again and torch.is_grad_enabled():
            result: tuple[torch.Tensor, torch.Tensor] = checkpoint(
                function, x, added, turns, heads, scale, multiply, *self.tensors(), use_reentrant=False,
                preserve_rng_state=False,
            )  # fmt: skip
            return result
        return function(x, added, turns, heads, scale, multiply, *self.tensors())

    def tensors(self) -> tuple[Any, ...]:
        """Return the parameters, with casts in the place of matrices, in the order of `layer`'s arguments."""
        parts, out, widen, narrow = self.casts or self.matrices()
        return (
            self.norm1, parts, self.parts_bias, out, self.out_bias,
            self.norm2, widen, self.widen_bias, narrow, self.narrow_bias,
        )  # fmt: skip

    def matrices(self) -> list[nn.Parameter]:
        return [self.parts, self.out, self.widen, self.narrow]


def empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape))


def draw(parameter: torch.Tensor, std: float, on_device: bool) -> None:
    """Fill with normal random numbers. Unless `on_device`, the CPU draws them: then all devices get the same."""
    if on_device or parameter.device.type == "cpu":
        parameter.normal_(std=std)
    elif not parameter.is_meta:
        parameter.copy_(torch.empty(parameter.shape, device="cpu").normal_(std=std))
