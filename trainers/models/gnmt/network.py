"""GNMT, by Y. Wu et al. 2016 (arXiv:1609.08144), as in MLPerf: LSTMs with attention after D. Bahdanau et al.

The encoder's first layer is bidirectional. From the third layer on, encoder and decoder add a layer's input to its
output. Only the decoder's first layer queries the attention (arXiv:1409.0473, normalised as in arXiv:1602.07868), and
all later layers get its result. Every layer can therefore process a whole sentence in one call of cuDNN.

Between layers tensors are [T, n, width], time first, as cuDNN reads and writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from trainers.data.text import PAD
from trainers.models.gnmt.lstm import Lstm, State, autocast_type
from trainers.ops.additive_attention import additive_scores


@dataclass(frozen=True)
class Sizes:
    """`width` is that of the vectors between layers and of the states; initial weights are uniform in +-`initial`."""

    layers: int = 4
    width: int = 1024
    dropout: float = 0.2
    initial: float = 0.1


def attend(
    query: torch.Tensor, key: torch.Tensor, memory: torch.Tensor, valid: torch.Tensor, direction: torch.Tensor,
    length: torch.Tensor, bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the attended values, [T, n, width], and the attention weights, [n, T, S], which add up to 1.

    `query` is [T, n, width]; `key` and `memory` are [S, n, width]; `valid`, bool [n, S], is False for padding. The
    scores are `length` * v . tanh(query + key + `bias`), where v is `direction`, [width], normalised to length 1.
    """
    vector = length * direction / direction.norm()
    looked = additive_scores(query, key, vector, bias).masked_fill(~valid[:, None, :], -torch.inf).softmax(dim=2)
    attended = torch.bmm(looked.to(memory.dtype), memory.transpose(0, 1))
    return attended.transpose(0, 1), looked


def dropped(x: torch.Tensor, share: float, training: bool, dtype: torch.dtype) -> torch.Tensor:
    return F.dropout(x.to(dtype), share, training)


def joined(x: torch.Tensor, y: torch.Tensor, share: float, training: bool) -> torch.Tensor:
    return F.dropout(torch.cat((x, y.to(x.dtype)), dim=2), share, training)


def added(x: torch.Tensor, y: torch.Tensor, share: float, training: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum, and the sum after dropout."""
    total = x + y
    return total, F.dropout(total, share, training)


class Reordered(torch.autograd.Function):
    """Rows x[order] of x [N, width]. The order is its own inverse, so the backward pass is a gather, without sums."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(order)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.index_select(0, ctx.saved_tensors[0]), None


def reversed_within(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return x, [S, n, width], with the first `lengths` [n] tokens of each sentence reversed; padding stays."""
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
        self.attend: Callable[..., tuple[torch.Tensor, torch.Tensor]] = attend  # compiled by `compile_between`

    def forward(
        self, asking: torch.Tensor, key: torch.Tensor, memory: torch.Tensor, valid: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        query = self.query(asking)
        return self.attend(query, key, memory.to(query.dtype), valid, self.direction, self.length, self.bias)


class Gnmt(nn.Module):
    """Maps ids to the classifier's input."""

    def __init__(self, num_tokens: int, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.sizes = sizes
        self.embedding = nn.Embedding(num_tokens, width, padding_idx=PAD)  # shared by both languages
        self.forwards, self.backwards = Lstm(width, width), Lstm(width, width)
        of_encoder = [Lstm(2 * width, width), *(Lstm(width, width) for _ in range(sizes.layers - 2))]
        self.encoder = nn.ModuleList(of_encoder)
        self.first, self.attention = Lstm(width, width), Attention(width)
        self.decoder = nn.ModuleList(Lstm(2 * width, width) for _ in range(sizes.layers - 1))
        self.classifier = nn.Linear(width, num_tokens)
        self.dropped, self.joined, self.added = dropped, joined, added  # compiled by `compile_between`
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -self.sizes.initial, self.sizes.initial)
        for module in self.modules():
            if isinstance(module, Lstm):  # An LSTM adds two biases; one is enough.
                nn.init.zeros_(module.bias_hh_l0)  # type: ignore[arg-type]
        nn.init.constant_(self.attention.length, self.sizes.width**-0.5)
        nn.init.zeros_(self.attention.bias)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def compile_between(self) -> None:
        """Compile the operations between LSTMs, for all shapes at once; a graph would break at each LSTM."""
        self.attention.attend = torch.compile(attend, dynamic=True)
        self.dropped = torch.compile(dropped, dynamic=True)
        self.joined = torch.compile(joined, dynamic=True)
        self.added = torch.compile(added, dynamic=True)

    def embedded(self, ids: torch.Tensor) -> torch.Tensor:
        """Embed ids [n, T] and apply dropout; return [T, n, width] in the LSTMs' dtype."""
        x: torch.Tensor = self.embedding(ids.t())
        return self.dropped(x, self.sizes.dropout, self.training, autocast_type(x) or x.dtype)

    def encode(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode ids [n, S]; return memory [S, n, width], its keys, and a mask [n, S] that is False for padding.

        Padding does not change the encoding of tokens.
        """
        valid = source != PAD
        lengths = valid.sum(dim=1)
        dropout = (self.sizes.dropout, self.training)
        x = self.embedded(source)
        backwards = reversed_within(self.backwards(reversed_within(x, lengths))[0], lengths)
        x = self.encoder[0](self.joined(self.forwards(x)[0], backwards, *dropout))[0]
        y = self.dropped(x, *dropout, x.dtype)
        for layer in self.encoder[1:]:
            x, y = self.added(x, layer(y)[0], *dropout)
        return x, self.attention.key(x), valid

    def decode(
        self, inputs: torch.Tensor, memory: torch.Tensor, key: torch.Tensor, valid: torch.Tensor,
        states: list[State] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, list[State]]:  # fmt: skip
        """Decode ids [n * beam, T]; return the classifier's input, the attention weights, and the layers' new states.

        With T = 1 the `beam` hypotheses of a sentence query its memory, [S, n, width], together.
        """
        before: Sequence[State | None] = states or [None] * self.sizes.layers
        x, state = self.first(self.embedded(inputs), before[0])
        after, num = [state], memory.shape[1]
        asking = x if x.shape[1] == num else x.view(num, -1, x.shape[2]).transpose(0, 1)
        attended, looked = self.attention(asking, key, memory, valid)
        attended = attended.transpose(0, 1).reshape(x.shape) if asking is not x else attended
        for number, layer in enumerate(self.decoder, 1):
            y, state = layer(self.joined(x, attended, self.sizes.dropout, self.training), before[number])
            x = y if number == 1 else x + y
            after.append(state)
        return x.transpose(0, 1), looked, after

    def forward(self, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Return the classifier's input, [n, T, width]."""
        x: torch.Tensor = self.decode(inputs, *self.encode(source))[0]
        return x


def classified_loss(
    classifier: nn.Linear, x: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, label_smoothing: float
) -> torch.Tensor:
    """Return the weighted sum of the smoothed cross entropies of labels [n, T], a scalar."""
    # Memory holds all first tokens, then all second ones: this order flattens without a copy.
    logits = classifier(x.transpose(0, 1).flatten(0, 1)).float()
    losses = F.cross_entropy(logits, labels.t().flatten(), reduction="none", label_smoothing=label_smoothing)
    return (losses * weights.t().flatten()).sum()


class Decoding:
    """Decodes one token a step for `beam` hypotheses a sentence; implements trainers.ops.beam.Stepper."""

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
