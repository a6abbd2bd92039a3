"""GPT-2's sizes with layers of 2025: rotary positions, RMS norms (also of queries and keys), squared ReLUs.

It follows modded-nanogpt's plain script (records/track_3_optimization/train_gpt_simple.py): initialization, half of
each head's width rotated, attention scaled by 0.12, logits capped at 15, biases everywhere.

`architecture=llama` has Llama 3's layers instead (llama.py), without caps and biases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from trainers.models.gpt.cross_entropy import CrossEntropy
from trainers.models.gpt.layers import DRAWN_ON_DEVICE, Cast, Multiply, Sizes, Weights, draw, empty, linear, norm
from trainers.models.gpt.llama import LlamaWeights
from trainers.ops.sharding import is_sharded

ARCHITECTURES: dict[str, Any] = {"gpt": Weights, "llama": LlamaWeights}
LLAMA_STD = 0.02


def first(table: torch.Tensor, gains: torch.Tensor | None, inputs: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the first layer's input: the embedding, normalised if there are gains."""
    looked_up = F.embedding(inputs, table).to(dtype)
    return looked_up if gains is None else norm(looked_up, gains)


def last(x: torch.Tensor, added: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return norm(x + added, gains)


class Parts(NamedTuple):
    """The functions that a forward pass calls, compiled or not."""

    first: Callable[..., torch.Tensor]
    layer: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    last: Callable[..., torch.Tensor]
    multiply: Multiply = linear  # the layer's matrix product
    cast: Cast | None = None  # casts a layer's matrices for it


class GPT(nn.Module):
    """Embedding, layers and head; embedding and head do not share weights."""

    turns: torch.Tensor

    def __init__(
        self, sizes: Sizes, length: int, scale: float | None = 0.12, cap: float | None = 15.0,
        activation_checkpointing: bool = False, architecture: str = "gpt",
    ) -> None:  # fmt: skip
        """`length` is the longest sequence's. `scale` None means 1 / sqrt(a head's width)."""
        super().__init__()
        self.sizes, self.architecture, self.activation_checkpointing = sizes, architecture, activation_checkpointing
        self.scale = scale or (sizes.width / sizes.heads) ** -0.5
        block, is_gpt = ARCHITECTURES[architecture], architecture == "gpt"
        self.on_device = num_parameters(sizes, architecture) >= DRAWN_ON_DEVICE
        self.embedding = empty(sizes.vocabulary, sizes.width)
        self.embedding_norm = empty(sizes.width) if is_gpt else None
        self.last_norm = empty(sizes.width)
        self.head = empty(sizes.vocabulary, sizes.width)
        self.head_bias = empty(sizes.vocabulary) if is_gpt else None
        self.register_buffer("turns", torch.empty(2, length, 1, sizes.width // sizes.heads // 2), persistent=False)
        self.draw()
        self.layers = nn.ModuleList(block(sizes, self.on_device) for _ in range(sizes.layers))
        self.cross_entropy = CrossEntropy(cap)
        self.multiply: Multiply = linear
        self.cast: Cast | None = None
        self.drop_compiled()

    @torch.no_grad()
    def draw(self) -> None:
        """Initialize the parameters, except those of the layers."""
        is_gpt = self.architecture == "gpt"
        draw(self.embedding, 1.0 if is_gpt else LLAMA_STD, self.on_device)
        for gains in (self.embedding_norm, self.last_norm):
            if gains is not None:
                gains.fill_(1)
        if self.head_bias is None:
            draw(self.head, self.sizes.width**-0.5, self.on_device)
        else:
            self.head.zero_()
            self.head_bias.zero_()
        with torch.device("cpu"):  # Devices round cosines differently.
            turns = ARCHITECTURES[self.architecture].turns(self.turns.shape[1], 2 * self.turns.shape[-1])
        self.turns.copy_(turns)

    def compile_parts(self) -> None:
        """Compile the layer function, once for all layers, and the functions before and after the layers."""
        made: list[Any] = [torch.compile(part, dynamic=False) for part in self._plain()[:3]]
        cast = self.cast and torch.compile(self.cast, dynamic=False)
        self._parts = Parts(*made)._replace(multiply=self.multiply, cast=cast)
        self.cross_entropy.compile()

    def drop_compiled(self) -> None:
        self._parts = self._plain(self.multiply)._replace(cast=self.cast)
        self.cross_entropy.drop_compiled()

    @contextmanager
    def kept_casts(self) -> Iterator[None]:
        """Cast the layers' matrices once for all forward passes in the block, if products take casts.

        A sharded model casts in each pass, since it gathers a layer right before.
        """
        cast = None if is_sharded(self.last_norm) else self._parts.cast
        blocks: list[Any] = list(self.layers)
        try:
            for block in blocks:
                block.casts = cast(block.matrices()) if cast else None
            yield
        finally:
            for block in blocks:
                block.casts = None

    def _plain(self, multiply: Multiply = linear) -> Parts:
        return Parts(first, ARCHITECTURES[self.architecture].function, last, multiply)

    def forward(self, inputs: torch.Tensor, parts: Parts | None = None) -> torch.Tensor:
        """Return the head's input, [n, length, width], for ids [n, length], in autocast's dtype."""
        parts = parts or self._parts
        device = inputs.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.embedding.dtype
        with torch.autocast(device, enabled=False):  # The network casts explicitly, as the original script does.
            x = parts.first(self.embedding, self.embedding_norm, inputs, dtype)
            # It requires gradients as later layers' outputs do; else the compiler would compile this layer again.
            added = torch.zeros_like(x, requires_grad=x.requires_grad)
            turns = self.turns[:, : inputs.shape[1]]
            for weights in self.layers:
                x, added = weights(
                    x,
                    added,
                    turns,
                    self.sizes.heads,
                    self.scale,
                    parts.multiply,
                    parts.layer,
                    self.activation_checkpointing,
                )
            return parts.last(x, added, self.last_norm)

    def summed_loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum of the cross entropies in nats, a float32 scalar, for ids [n, length] each.

        Targets below 0 are ignored.
        """
        hidden = self.forward(inputs)  # Not self(inputs): FSDP has gathered the parameters for this method.
        with torch.autocast(inputs.device.type, enabled=False):
            return self.cross_entropy(hidden.flatten(0, 1), self.head, self.head_bias, targets.flatten())

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return capped logits of the next token, float32 [n, length, vocabulary]. Uncompiled, for an export."""
        cap = self.cross_entropy.cap
        logits = linear(self.forward(inputs, self._plain()), self.head, self.head_bias).float()
        return logits if cap is None else cap * logits * (logits.square() + cap * cap).rsqrt()


def weights_of_layer(sizes: Sizes, architecture: str) -> int:
    """Return the number of weights in a layer's matrices."""
    shared = (sizes.kv_heads or sizes.heads) / sizes.heads
    attention, hidden = (2 + 2 * shared) * sizes.width**2, sizes.hidden_units * sizes.width
    return round(attention + (3 if architecture == "llama" else 2) * hidden)


def num_parameters(sizes: Sizes, architecture: str) -> int:
    """Return the number of parameters, without norms and biases."""
    return sizes.layers * weights_of_layer(sizes, architecture) + 2 * sizes.vocabulary * sizes.width


def flops_per_token(sizes: Sizes, length: int, architecture: str = "gpt") -> float:
    """Return the FLOPs of a training step per token: 6 for each weight of a matrix, and those of attention.

    A multiply-add counts as two, and the backward pass as twice the forward pass. Attention counts in full, as if it
    were not causal; embedding, norms and biases do not count.
    """
    attention = 2 * length * sizes.width  # multiplications with keys and with values
    of_layers = sizes.layers * (weights_of_layer(sizes, architecture) + attention)
    return 6.0 * (of_layers + sizes.vocabulary * sizes.width)
