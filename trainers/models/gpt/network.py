"""GPT-2's size with the layers of 2025: rotary positions, RMS norms, also of queries and keys, and squared ReLUs.

The definition is that of modded-nanogpt's plain script (records/track_3_optimization/train_gpt_simple.py): its first
weights, half of each head's width rotated, attention scaled by 0.12, logits capped at 15, biases everywhere.

What a layer adds last is added by the next one: the sum is then made where it is normalised, in one kernel, although
the compiler sees one layer alone. All layers share one compiled function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from trainers.models.gpt.cross_entropy import CappedCrossEntropy

BASE = 1024.0  # The slowest of the rotations has this wave length, in tokens, over 2 pi.
INITIAL_VARIANCE = 0.33  # of a weight, times the inputs it sums over


@dataclass(frozen=True)
class Sizes:
    layers: int = 12
    width: int = 768
    heads: int = 6
    vocabulary: int = 50304
    hidden: int = 4  # times the width


def rotations(length: int, width: int) -> torch.Tensor:
    """Cosines and sines of each place, float32 [2, length, 1, width / 2]; the second half of them does not turn."""
    rates = (1 / BASE) ** torch.linspace(0, 1, width // 4, dtype=torch.float32)
    rates = torch.cat((rates, torch.zeros(width // 4)))
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)[:, None]
    return torch.stack((angles.cos(), angles.sin()))


def rotated(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """[n, length, heads, width], each place turned by its own angles."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = turns
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1).to(x.dtype)


def norm(x: torch.Tensor, gains: torch.Tensor | None = None) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], None if gains is None else gains.to(x.dtype))


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


def layer(
    x: torch.Tensor, added: torch.Tensor, turns: torch.Tensor, heads: int, scale: float,
    norm1: torch.Tensor, parts: torch.Tensor, parts_bias: torch.Tensor, out: torch.Tensor, out_bias: torch.Tensor,
    norm2: torch.Tensor, widen: torch.Tensor, widen_bias: torch.Tensor, narrow: torch.Tensor, narrow_bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """What flows between layers, [n, length, width], and what is still to be added to it.

    A function of tensors and no module: the compiler makes one of it, whichever layer they are of.
    """
    x = x + added
    split = linear(norm(x, norm1), parts.flatten(0, 1), parts_bias.flatten()).unflatten(2, (3, heads, -1))
    query, key, value = split.unbind(2)
    query, key = rotated(norm(query), turns), rotated(norm(key), turns)
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
    x = x + linear(seen.transpose(1, 2).flatten(2), out, out_bias)
    hidden = linear(norm(x, norm2), widen, widen_bias).relu().square()
    return x, linear(hidden, narrow, narrow_bias)


def first(table: torch.Tensor, gains: torch.Tensor, inputs: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return norm(F.embedding(inputs, table).to(dtype), gains)


def last(x: torch.Tensor, added: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return norm(x + added, gains)


class Parts(NamedTuple):
    """What a forward pass calls, compiled or not."""

    first: Callable[..., torch.Tensor]
    layer: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    last: Callable[..., torch.Tensor]


PLAIN = Parts(first, layer, last)


class Weights(nn.Module):
    """What a layer learns. Query, key and value are three matrices [width, width] behind one another."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.parts, self.parts_bias = drawn(3, width, width), zeros(3, width)
        self.out, self.out_bias = zeros(width, width), zeros(width)
        self.widen, self.widen_bias = drawn(hidden, width), zeros(hidden)
        self.narrow, self.narrow_bias = zeros(width, hidden), zeros(width)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """In the order of `layer`'s arguments."""
        return (
            self.norm1, self.parts, self.parts_bias, self.out, self.out_bias,
            self.norm2, self.widen, self.widen_bias, self.narrow, self.narrow_bias,
        )  # fmt: skip

    def matrices(self) -> list[nn.Parameter]:
        return [self.parts, self.out, self.widen, self.narrow]


class GPT(nn.Module):
    """Embedding, layers and head, which are matrices of their own."""

    turns: torch.Tensor

    def __init__(self, sizes: Sizes, length: int, scale: float = 0.12, cap: float = 15.0) -> None:
        """`length` is that of the longest sequence."""
        super().__init__()
        self.sizes, self.scale = sizes, scale
        self.embedding = nn.Parameter(torch.empty(sizes.vocabulary, sizes.width).normal_())
        self.embedding_norm, self.last_norm = (nn.Parameter(torch.ones(sizes.width)) for _ in range(2))
        hidden = sizes.hidden * sizes.width
        self.layers = nn.ModuleList(Weights(sizes.width, hidden) for _ in range(sizes.layers))
        self.head, self.head_bias = zeros(sizes.vocabulary, sizes.width), zeros(sizes.vocabulary)
        self.register_buffer("turns", rotations(length, sizes.width // sizes.heads), persistent=False)
        self.cross_entropy = CappedCrossEntropy(cap)
        self.drop_compiled()

    def compile_parts(self) -> None:
        """Compile a layer, once for all of them, and what is before the first one and behind the last."""
        made: list[Any] = [torch.compile(part, dynamic=False) for part in PLAIN]
        self._parts = Parts(*made)
        self.cross_entropy.compile()

    def drop_compiled(self) -> None:
        self._parts = PLAIN
        self.cross_entropy.drop_compiled()

    def forward(self, inputs: torch.Tensor, parts: Parts | None = None) -> torch.Tensor:
        """What the head is given, [n, length, width], of ids [n, length]; in the type that autocast asks for."""
        parts = parts or self._parts
        device = inputs.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.embedding.dtype
        with torch.autocast(device, enabled=False):  # Types are told here, as the definition does.
            x = parts.first(self.embedding, self.embedding_norm, inputs, dtype)
            # As what later layers add does, or the compiler would make a function for this one.
            added = torch.zeros_like(x, requires_grad=x.requires_grad)
            turns = self.turns[:, : inputs.shape[1]]
            for weights in self.layers:
                x, added = parts.layer(x, added, turns, self.sizes.heads, self.scale, *weights.tensors())  # type: ignore[operator]
            return parts.last(x, added, self.last_norm)

    def summed_loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum of the cross entropies in nats, a float32 scalar, of ids [n, length] each; targets below 0 have
        none."""
        hidden = self(inputs)
        with torch.autocast(inputs.device.type, enabled=False):
            return self.cross_entropy(hidden.flatten(0, 1), self.head, self.head_bias, targets.flatten())

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """Capped logits of what follows, float32 [n, length, vocabulary]. Nothing compiled is called, for an export."""
        cap = self.cross_entropy.cap
        logits = linear(self(inputs, PLAIN), self.head, self.head_bias).float()
        return cap * logits * (logits.square() + cap * cap).rsqrt()


def flops_per_token(sizes: Sizes, length: int) -> float:
    """FLOPs of a training step a token: 6 a weight of a matrix, and attention.

    A multiplication with an addition counts as two, and the backward pass twice the forward one. Attention counts
    whole, as if no token were hidden; embedding, norms and biases do not count.
    """
    of_layer = (4 + 2 * sizes.hidden) * sizes.width**2
    attention = 2 * length * sizes.width  # multiplications: with the keys, and of the values
    return 6.0 * (sizes.layers * (of_layer + attention) + sizes.vocabulary * sizes.width)


def drawn(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape).normal_(std=(INITIAL_VARIANCE / shape[-1]) ** 0.5))


def zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))
