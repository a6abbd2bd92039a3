"""GNMT, of Y. Wu et al. 2016 (arXiv:1609.08144), in the form of MLPerf: LSTMs with attention after D. Bahdanau et al.

The encoder's first layer reads in both directions. From the third layer on, encoder and decoder add a layer's input to
its output. Attention (arXiv:1409.0473, normalised as in arXiv:1602.07868) is asked by the decoder's first layer alone,
and its answer goes into all later ones: so every layer goes over a whole sentence in one call, which cuDNN has.

Between layers tensors are [T, n, width], a token of all sentences behind another, as cuDNN reads and writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from trainers.data.text import PAD
from trainers.models.gnmt.lstm import Lstm, State, asked_type
from trainers.ops.additive_attention import additive_scores


@dataclass(frozen=True)
class Sizes:
    """`width` of the vectors between layers and of the LSTMs' states; first weights are uniform up to `initial`."""

    layers: int = 4
    width: int = 1024
    dropout: float = 0.2
    initial: float = 0.1


def attend(
    query: torch.Tensor, key: torch.Tensor, memory: torch.Tensor, there: torch.Tensor, direction: torch.Tensor,
    length: torch.Tensor, bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """What is seen, [T, n, width], and what of the source is looked at, [n, T, S], 1 in all.

    `query` is [T, n, width]; `key` and `memory` are [S, n, width], of which `there`, bool [n, S], is real. The scores
    are `length` * v . tanh(query + key + `bias`), where v has the `direction`, [width], and length 1.
    """
    vector = length * direction / direction.norm()
    looked = additive_scores(query, key, vector, bias).masked_fill(~there[:, None, :], -torch.inf).softmax(dim=2)
    seen = torch.bmm(looked.to(memory.dtype), memory.transpose(0, 1))
    return seen.transpose(0, 1), looked


def dropped(x: torch.Tensor, share: float, training: bool, dtype: torch.dtype) -> torch.Tensor:
    return F.dropout(x.to(dtype), share, training)


def joined(x: torch.Tensor, y: torch.Tensor, share: float, training: bool) -> torch.Tensor:
    return F.dropout(torch.cat((x, y.to(x.dtype)), dim=2), share, training)


def added(x: torch.Tensor, y: torch.Tensor, share: float, training: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum, and what dropout leaves of it."""
    total = x + y
    return total, F.dropout(total, share, training)


class Reordered(torch.autograd.Function):
    """Rows x[order], of x [N, width] and an order that is its own inverse: backward it needs no additions."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(order)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.index_select(0, ctx.saved_tensors[0]), None


def reversed_within(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """x [S, n, width] with the first `lengths` [n] of each sentence the other way round; the rest stays."""
    places = torch.arange(len(x), device=x.device)[:, None]
    order = torch.where(places < lengths, lengths - 1 - places, places)
    rows = order * x.shape[1] + torch.arange(x.shape[1], device=x.device)
    reordered: torch.Tensor = Reordered.apply(x.flatten(0, 1), rows.flatten())
    return reordered.view(x.shape)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.direction = nn.Parameter(torch.empty(width))
        self.length = nn.Parameter(torch.empty(1))
        self.bias = nn.Parameter(torch.empty(width))
        self.attend: Callable[..., tuple[torch.Tensor, torch.Tensor]] = attend  # `attend`, or what was compiled of it

    def forward(
        self, asking: torch.Tensor, key: torch.Tensor, memory: torch.Tensor, there: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        query = self.query(asking)
        return self.attend(query, key, memory.to(query.dtype), there, self.direction, self.length, self.bias)


class Gnmt(nn.Module):
    """Ids to what the classifier is given; `classify` gives logits."""

    def __init__(self, num_tokens: int, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.sizes = sizes
        self.embedding = nn.Embedding(num_tokens, width, padding_idx=PAD)  # both languages'
        self.forwards, self.backwards = Lstm(width, width), Lstm(width, width)
        of_encoder = [Lstm(2 * width, width), *(Lstm(width, width) for _ in range(sizes.layers - 2))]
        self.encoder = nn.ModuleList(of_encoder)
        self.first, self.attention = Lstm(width, width), Attention(width)
        self.decoder = nn.ModuleList(Lstm(2 * width, width) for _ in range(sizes.layers - 1))
        self.classifier = nn.Linear(width, num_tokens)
        self.dropped, self.joined, self.added = dropped, joined, added  # these, or what was compiled of them
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -self.sizes.initial, self.sizes.initial)
        for module in self.modules():
            if isinstance(module, Lstm):  # It has two biases, which are added: one is enough.
                nn.init.zeros_(module.bias_hh_l0)  # type: ignore[arg-type]
        nn.init.constant_(self.attention.length, self.sizes.width**-0.5)
        nn.init.zeros_(self.attention.bias)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def compile_between(self) -> None:
        """Compile what lies between the LSTMs, for all shapes at once; it would break at them."""
        self.attention.attend = torch.compile(attend, dynamic=True)
        self.dropped = torch.compile(dropped, dynamic=True)
        self.joined = torch.compile(joined, dynamic=True)
        self.added = torch.compile(added, dynamic=True)

    def embedded(self, ids: torch.Tensor) -> torch.Tensor:
        """Ids [n, T] to [T, n, width], of the type that LSTMs are given, behind dropout."""
        x: torch.Tensor = self.embedding(ids.t())
        return self.dropped(x, self.sizes.dropout, self.training, asked_type(x) or x.dtype)

    def encode(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Memory [S, n, width], its keys, and where it is real [n, S], of ids [n, S], whose padding changes none."""
        there = source != PAD
        lengths = there.sum(dim=1)
        dropout = (self.sizes.dropout, self.training)
        x = self.embedded(source)
        backwards = reversed_within(self.backwards(reversed_within(x, lengths))[0], lengths)
        x = self.encoder[0](self.joined(self.forwards(x)[0], backwards, *dropout))[0]
        y = self.dropped(x, *dropout, x.dtype)
        for layer in self.encoder[1:]:
            x, y = self.added(x, layer(y)[0], *dropout)
        return x, self.attention.key(x), there

    def decode(
        self, inputs: torch.Tensor, memory: torch.Tensor, key: torch.Tensor, there: torch.Tensor,
        states: list[State] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, list[State]]:  # fmt: skip
        """Of the ids [n * beam, T]: what the classifier is given, what was looked at, and the layers' states behind it.

        With one id each, a sentence's `beam` hypotheses ask its memory, [S, n, width], together.
        """
        before: Sequence[State | None] = states or [None] * self.sizes.layers
        x, state = self.first(self.embedded(inputs), before[0])
        after, num = [state], memory.shape[1]
        asking = x if x.shape[1] == num else x.view(num, -1, x.shape[2]).transpose(0, 1)
        seen, looked = self.attention(asking, key, memory, there)
        seen = seen.transpose(0, 1).reshape(x.shape) if asking is not x else seen
        for number, layer in enumerate(self.decoder, 1):
            y, state = layer(self.joined(x, seen, self.sizes.dropout, self.training), before[number])
            x = y if number == 1 else x + y
            after.append(state)
        return x.transpose(0, 1), looked, after

    def forward(self, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """What the classifier is given, [n, T, width]."""
        x: torch.Tensor = self.decode(inputs, *self.encode(source))[0]
        return x


def classified_loss(
    classifier: nn.Linear, x: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, label_smoothing: float
) -> torch.Tensor:
    """The weighted sum of the smoothed cross entropies of labels [n, T], a scalar."""
    # In memory the first tokens of all sentences come first, then all second ones: this flattens without a copy.
    logits = classifier(x.transpose(0, 1).flatten(0, 1)).float()
    losses = F.cross_entropy(logits, labels.t().flatten(), reduction="none", label_smoothing=label_smoothing)
    return (losses * weights.t().flatten()).sum()


class Decoding:
    """The decoder one token at a time, of `beam` hypotheses a sentence: implements trainers.ops.beam.Stepper."""

    def __init__(self, network: Gnmt, source: torch.Tensor) -> None:
        self._network = network
        self._memory = network.encode(source)
        self._states: list[State] | None = None

    def step(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, looked, self._states = self._network.decode(tokens.reshape(-1, 1), *self._memory, self._states)
        logits = self._network.classifier(x).float()
        return logits.log_softmax(dim=2).view(*tokens.shape, -1), looked.view(*tokens.shape, -1)

    def reorder(self, rows: torch.Tensor) -> None:
        assert self._states is not None
        self._states = [(hidden[:, rows], cell[:, rows]) for hidden, cell in self._states]
