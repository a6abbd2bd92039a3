"""A layer of the language model: its arithmetic, and what it learns.

What a layer adds last is added by the next one: the sum is then made where it is normalised, in one kernel, although
the compiler sees one layer alone. All layers share one compiled function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

BASE = 1024.0  # The slowest of the rotations has this wave length, in tokens, over 2 pi.
INITIAL_VARIANCE = 0.33  # of a weight, times the inputs it sums over
DRAWN_ON_DEVICE = 1_000_000_000  # parameters from which on a CPU, which draws 100 million a second, is not waited for


Multiply = Callable[..., torch.Tensor]  # a linear layer: `linear`, or fp8's


@dataclass(frozen=True)
class Sizes:
    layers: int = 12
    width: int = 768
    heads: int = 6
    vocabulary: int = 50304
    hidden: float = 4  # times the width
    kv_heads: int | None = None  # those of keys and values; as many as of queries

    @property
    def hidden_units(self) -> int:
        return round(self.hidden * self.width)


def rotations(length: int, width: int) -> torch.Tensor:
    """Cosines and sines of each place, float32 [2, length, 1, width / 2]; the second half of them does not turn."""
    rates = (1 / BASE) ** torch.linspace(0, 1, width // 4, dtype=torch.float32)
    return turns_at(torch.cat((rates, torch.zeros(width // 4))), length)


def turns_at(rates: torch.Tensor, length: int) -> torch.Tensor:
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)[:, None]
    return torch.stack((angles.cos(), angles.sin()))


def rotated(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """[n, length, heads, width], each place turned by its own angles."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = turns
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1).to(x.dtype)


def norm(x: torch.Tensor, gains: torch.Tensor | None = None) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], None if gains is None else gains.to(x.dtype))


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def layer(
    x: torch.Tensor, added: torch.Tensor, turns: torch.Tensor, heads: int, scale: float, multiply: Multiply,
    norm1: torch.Tensor, parts: torch.Tensor, parts_bias: torch.Tensor, out: torch.Tensor, out_bias: torch.Tensor,
    norm2: torch.Tensor, widen: torch.Tensor, widen_bias: torch.Tensor, narrow: torch.Tensor, narrow_bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """What flows between layers, [n, length, width], and what is still to be added to it.

    A function of tensors and no module: the compiler makes one of it, whichever layer they are of.
    """
    x = x + added
    split = multiply(norm(x, norm1), parts.flatten(0, 1), parts_bias.flatten()).unflatten(2, (3, heads, -1))
    query, key, value = split.unbind(2)
    query, key = rotated(norm(query), turns), rotated(norm(key), turns)
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
    x = x + multiply(seen.transpose(1, 2).flatten(2), out, out_bias)
    hidden = multiply(norm(x, norm2), widen, widen_bias).relu().square()
    return x, multiply(hidden, narrow, narrow_bias)


class Weights(nn.Module):
    """What a layer learns. Query, key and value are three matrices [width, width] behind one another."""

    function: Callable[..., Any] = staticmethod(layer)
    turns = staticmethod(rotations)

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
        """Give the parameters their first values."""
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
        """`layer` or what was compiled of it; `again` computes it a second time in the backward pass."""
        if again and torch.is_grad_enabled():
            result: tuple[torch.Tensor, torch.Tensor] = checkpoint(
                function, x, added, turns, heads, scale, multiply, *self.tensors(), use_reentrant=False,
                preserve_rng_state=False,
            )  # fmt: skip
            return result
        return function(x, added, turns, heads, scale, multiply, *self.tensors())

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """In the order of `layer`'s arguments."""
        return (
            self.norm1, self.parts, self.parts_bias, self.out, self.out_bias,
            self.norm2, self.widen, self.widen_bias, self.narrow, self.narrow_bias,
        )  # fmt: skip

    def matrices(self) -> list[nn.Parameter]:
        return [self.parts, self.out, self.widen, self.narrow]


def empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape))


def draw(parameter: torch.Tensor, std: float, on_device: bool) -> None:
    """Fill with normal numbers. Those of a CPU are the same on any device."""
    if on_device or parameter.device.type == "cpu":
        parameter.normal_(std=std)
    elif not parameter.is_meta:
        parameter.copy_(torch.empty(parameter.shape).normal_(std=std))
