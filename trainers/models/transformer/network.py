"""The Transformer of "Attention is all you need" (A. Vaswani et al. 2017, arXiv:1706.03762), as in MLPerf.

Layers normalise their input, as in tensor2tensor, and a last norm follows the last layer. One matrix embeds both
languages and computes the logits. Attention has no biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from trainers.data.text import PAD
from trainers.ops.attention import Spans, attend, has_kernels, spans

MOST_PLACES = 2048  # the most tokens of a sentence
SLOWEST = 1e4  # wave length of the slowest sine of the positions, in tokens, over 2 pi
EPSILON = 1e-6  # of the layer norms, as in tensor2tensor
Where = torch.Tensor | Spans | None  # what tokens may attend to: a mask, spans, or everything


@dataclass(frozen=True)
class Sizes:
    """`width` is that of the vectors between layers; a feed-forward layer has `hidden` units."""

    layers: int = 6
    width: int = 1024
    hidden: int = 4096
    heads: int = 16
    dropout: float = 0.1


def positions(num: int, width: int) -> torch.Tensor:
    """Return sines and cosines by position, float32 [num, width], in tensor2tensor's layout: all sines first."""
    rates = torch.exp(torch.arange(width // 2) * (-math.log(SLOWEST) / (width // 2 - 1)))
    angles = torch.arange(num)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class Attention(nn.Module):
    """Scaled dot-product attention in several heads, to the inputs' own sequence or to another one."""

    def __init__(self, sizes: Sizes, of_itself: bool) -> None:
        super().__init__()
        width = sizes.width
        self.heads, self.dropout = sizes.heads, sizes.dropout
        self.parts = nn.Linear(width, 3 * width if of_itself else width, bias=False)
        self.source_parts = None if of_itself else nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def split(self, vectors: torch.Tensor, num: int) -> tuple[torch.Tensor, ...]:
        """Split [n, L, num * width] into `num` tensors [n, heads, L, width / heads]."""
        return tuple(part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in vectors.chunk(num, dim=2))

    def of_source(self, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return keys and values of another sequence, [n, S, width]."""
        assert self.source_parts is not None
        return self.split(self.source_parts(source), 2)

    def forward(
        self, inputs: torch.Tensor, where: torch.Tensor | None, source: tuple[torch.Tensor, ...] | None = None
    ) -> torch.Tensor:
        """Attend from inputs [n, L, width] within the mask `where`, bool [n, 1, L or 1, S].

        `source` has keys and values of another sequence.
        """
        if source is None:
            query, key, value = self.split(self.parts(inputs), 3)
        else:
            (query,), (key, value) = self.split(self.parts(inputs), 1), source
        return self.attend(query, key, value, where)

    def within(self, inputs: torch.Tensor, where: Spans, memory: torch.Tensor | None) -> torch.Tensor:
        """Attend from inputs [n, L, width] within spans; `memory`, [n, S, width], has keys and values if given."""
        source = None
        if memory is not None:
            assert self.source_parts is not None
            source = self.source_parts(memory).view(-1, 2, self.heads, memory.shape[2] // self.heads)
        parts = self.parts(inputs).view(-1, 3 if memory is None else 1, self.heads, inputs.shape[2] // self.heads)
        result = attend(parts, source, where, self.dropout if self.training else 0.0)
        attended: torch.Tensor = self.out(result.view_as(inputs))
        return attended

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        dropout = self.dropout if self.training else 0.0
        result = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        attended: torch.Tensor = self.out(result.transpose(1, 2).flatten(2))
        return attended


class Layer(nn.Module):
    """Self-attention, in a decoder also attention to the source, and dense layers, each with a residual connection."""

    def __init__(self, sizes: Sizes, decodes: bool) -> None:
        super().__init__()
        self.own_norm, self.own = nn.LayerNorm(sizes.width, EPSILON), Attention(sizes, of_itself=True)
        if decodes:
            self.source_norm, self.source = nn.LayerNorm(sizes.width, EPSILON), Attention(sizes, of_itself=False)
        self.dense_norm = nn.LayerNorm(sizes.width, EPSILON)
        self.widen, self.narrow = nn.Linear(sizes.width, sizes.hidden), nn.Linear(sizes.hidden, sizes.width)
        self.dropout = nn.Dropout(sizes.dropout)

    def dense(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(F.relu(self.widen(self.dense_norm(x))))
        added: torch.Tensor = x + self.dropout(self.narrow(hidden))
        return added

    def forward(
        self, x: torch.Tensor, where: Where, memory: torch.Tensor | None = None, source_where: Where = None
    ) -> torch.Tensor:
        x = x + self.dropout(attend_to(self.own, self.own_norm(x), where))
        if memory is not None:
            x = x + self.dropout(attend_to(self.source, self.source_norm(x), source_where, memory))
        return self.dense(x)


def attend_to(
    attention: Attention, inputs: torch.Tensor, where: Where, memory: torch.Tensor | None = None
) -> torch.Tensor:
    """Attend from `inputs`, [n, L, width], to themselves or to a `memory`, [n, S, width]."""
    if isinstance(where, Spans):
        return attention.within(inputs, where, memory)
    attended: torch.Tensor = attention(inputs, where, None if memory is None else attention.of_source(memory))
    return attended


class Transformer(nn.Module):
    """Maps ids to logits. A row may hold several sentences (trainers.data.text.packing)."""

    places: torch.Tensor

    def __init__(self, num_tokens: int, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(num_tokens, sizes.width)
        self.encoder = nn.ModuleList(Layer(sizes, decodes=False) for _ in range(sizes.layers))
        self.decoder = nn.ModuleList(Layer(sizes, decodes=True) for _ in range(sizes.layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(sizes.width, EPSILON), nn.LayerNorm(sizes.width, EPSILON)
        self.dropout = nn.Dropout(sizes.dropout)
        self.register_buffer("places", positions(MOST_PLACES, sizes.width), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as tensor2tensor: embeddings normal with deviation width ** -0.5, matrices Glorot-uniform."""
        nn.init.normal_(self.embedding.weight, std=self.sizes.width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                for part in module.weight.split(min(module.weight.shape[0], self.sizes.width)) if (
                    module.bias is None
                ) else [module.weight]:  # fmt: skip
                    nn.init.xavier_uniform_(part)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def embed(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        vectors = self.embedding(ids) * self.sizes.width**0.5 + self.places[places]
        embedded: torch.Tensor = self.dropout(vectors)
        return embedded

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.decoder_norm(x), self.embedding.weight)

    def encode(self, source: torch.Tensor, places: torch.Tensor, where: Where) -> torch.Tensor:
        """Encode ids at their places, [n, S] each; return the decoder's memory, [n, S, width]."""
        x = self.embed(source, places)
        for layer in self.encoder:
            x = layer(x, where)
        memory: torch.Tensor = self.encoder_norm(x)
        return memory

    def forward(
        self, source: torch.Tensor, inputs: torch.Tensor, source_place: torch.Tensor, source_sentence: torch.Tensor,
        target_place: torch.Tensor, target_sentence: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Return the logits, [n, T, tokens], of the token that follows each of the decoder's `inputs`."""
        where: tuple[Where, ...]
        if has_kernels(source.device, self.sizes.width // self.sizes.heads):
            of_source, of_target = (
                spans(source_sentence, source_sentence),
                spans(target_sentence, target_sentence, True),
            )
            where = of_source, of_target, spans(target_sentence, source_sentence)
        else:
            where = masks(source_sentence, target_sentence)
        memory = self.encode(source, source_place, where[0])
        x = self.embed(inputs, target_place)
        for layer in self.decoder:
            x = layer(x, where[1], memory, where[2])
        return self.logits(x)


def masks(source: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the masks of source to source, target to target and target to source, bool [n, 1, L, S].

    `source` and `target` are the sentences' numbers, [n, L], with 0 for padding.
    """
    earlier = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).tril()
    target_tokens = target[:, None, :, None]
    # Padding attends to padding, and to all of the source: a softmax over nothing would be NaN.
    of_source = source[:, None, :, None] == source[:, None, None, :]
    return (
        of_source,
        (target_tokens == target[:, None, None, :]) & earlier,
        (target_tokens == source[:, None, None, :]) | (target_tokens == 0),
    )


def unpacked(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return places and sentence numbers, int64 [n, L] each, of rows with one sentence and padding."""
    places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return places, (ids != PAD).long()


class Decoding:
    """Decodes one token a step for `beam` hypotheses a sentence; implements trainers.ops.beam.Stepper."""

    def __init__(self, network: Transformer, source: torch.Tensor, beam: int) -> None:
        self._network, self._beam, self._place = network, beam, 0
        places, sentences = unpacked(source)
        memory = network.encode(source, places, masks(sentences, sentences)[0])
        self._memory = [layer.source.of_source(memory) for layer in network.decoder]  # type: ignore[operator,union-attr]
        self._mask = (sentences > 0)[:, None, None, :]
        self._seen: list[tuple[torch.Tensor, torch.Tensor]] = []  # keys and values of each layer so far

    def step(self, tokens: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return log-probabilities of the next token, float32 [n, beam, tokens], for the last ids [n, beam]."""
        network, num = self._network, len(tokens)
        places = torch.full_like(tokens, self._place).view(-1, 1)
        x = network.embed(tokens.reshape(-1, 1), places)
        for number, layer in enumerate(network.decoder):
            self_attention: Attention = layer.own  # type: ignore[assignment]
            query, key, value = self_attention.split(self_attention.parts(layer.own_norm(x)), 3)  # type: ignore[operator]
            if self._place:
                key, value = (
                    torch.cat(pair, dim=2) for pair in zip(self._seen[number], (key, value), strict=True)
                )  # fmt: skip
                self._seen[number] = key, value
            else:
                self._seen.append((key, value))
            x = x + self_attention.attend(query, key, value, None)
            # A sentence's hypotheses attend to the same source, so they are its queries: nothing has to be copied.
            looked = layer.source_norm(x).view(num, self._beam, -1)  # type: ignore[operator]
            x = x + layer.source(looked, self._mask, self._memory[number]).view_as(x)  # type: ignore[operator]
            x = layer.dense(x)  # type: ignore[operator]
        self._place += 1
        return network.logits(x).float().log_softmax(dim=-1).view(num, self._beam, -1), None

    def reorder(self, rows: torch.Tensor) -> None:
        """Continue with the hypotheses `rows`, int64 [n * beam]."""
        self._seen = [(key.index_select(0, rows), value.index_select(0, rows)) for key, value in self._seen]
