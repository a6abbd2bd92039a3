"""Llama 3's layer: rotary positions over whole heads, grouped queries, a gated hidden layer (SwiGLU), no biases.

Grattafiori et al. 2024, https://arxiv.org/abs/2407.21783, in the shapes and first weights of torchtitan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from trainers.models.gpt.layers import Multiply, Sizes, Weights, draw, empty, rotated, turns_at

BASE = 500_000.0
EPSILON = 1e-5
STD = 0.02


def rotations(length: int, width: int) -> torch.Tensor:
    """Return cosines and sines by position, float32 [2, length, 1, width / 2]."""
    rates = BASE ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    return turns_at(-rates, length)  # Llama rotates in the opposite direction.


def normed(x: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], gains.to(x.dtype), EPSILON)


def layer(
    x: torch.Tensor, added: torch.Tensor, turns: torch.Tensor, heads: int, scale: float, multiply: Multiply,
    norm1: torch.Tensor, query: torch.Tensor, pairs: torch.Tensor, out: torch.Tensor,
    norm2: torch.Tensor, widen: torch.Tensor, narrow: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the residual stream, [n, length, width], and the layer's last output, which the next layer adds to it."""
    x = x + added
    before = normed(x, norm1)
    queries = multiply(before, query).unflatten(2, (heads, -1))
    keys, values = multiply(before, pairs).unflatten(2, (2, -1, queries.shape[-1])).unbind(2)
    queries, keys = rotated(queries, turns), rotated(keys, turns)
    queries, keys, values = (part.transpose(1, 2) for part in (queries, keys, values))
    attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale, enable_gqa=True)
    x = x + multiply(attended.transpose(1, 2).flatten(2), out)
    gate, up = multiply(normed(x, norm2), widen).chunk(2, dim=2)
    return x, multiply(F.silu(gate) * up, narrow)


class LlamaWeights(Weights):
    """The parameters of a Llama layer. `pairs` stacks keys and values, `widen` the gate and the hidden layer."""

    function: Callable[..., Any] = staticmethod(layer)
    turns = staticmethod(rotations)

    def __init__(self, sizes: Sizes, on_device: bool = False) -> None:
        super(Weights, self).__init__()
        width, hidden = sizes.width, sizes.hidden_units
        narrow = width * (sizes.kv_heads or sizes.heads) // sizes.heads
        self.on_device, self.num_layers = on_device, sizes.layers
        self.norm1, self.norm2 = empty(width), empty(width)
        self.query, self.pairs, self.out = empty(width, width), empty(2, narrow, width), empty(width, width)
        self.widen, self.narrow = empty(2, hidden, width), empty(width, hidden)
        self.draw()

    @torch.no_grad()
    def draw(self) -> None:
        for parameter in (self.query, self.pairs, self.widen):
            draw(parameter, STD, self.on_device)
        for parameter in (self.out, self.narrow):
            draw(parameter, STD / (2 * self.num_layers) ** 0.5, self.on_device)
        for parameter in (self.norm1, self.norm2):
            parameter.fill_(1)

    def tensors(self) -> tuple[Any, ...]:
        query, pairs, out, widen, narrow = self.casts or self.matrices()
        return self.norm1, query, pairs, out, self.norm2, widen, narrow

    def matrices(self) -> list[torch.nn.Parameter]:
        return [self.query, self.pairs, self.out, self.widen, self.narrow]
