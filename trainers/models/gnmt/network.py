"""GNMT, of Y. Wu et al. 2016 (arXiv:1609.08144), in the form of MLPerf: LSTMs with attention after D. Bahdanau et al.

The encoder's first layer reads in both directions. From the third layer on, encoder and decoder add a layer's input to
its output. Attention (arXiv:1409.0473, normalised as in arXiv:1602.07868) is asked by the decoder's first layer alone,
and its answer goes into all later ones: so every layer goes over a whole sentence in one call, which cuDNN has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from trainers.data.text import PAD

State = tuple[torch.Tensor, torch.Tensor]


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
    """What is seen, [n, T, width], and what of the source is looked at, [n, T, S], 1 in all.

    `query` is [n, T, width]; `key` and `memory` are [n, S, width], of which `there`, bool [n, S], is real. The scores
    are `length` * v . tanh(query + key + `bias`), where v has the `direction`, [width], and length 1.
    """
    hidden = torch.tanh(query[:, :, None, :] + key[:, None, :, :] + bias)
    vector = length * direction / direction.norm()
    scores = (hidden * vector).sum(dim=3).float().masked_fill(~there[:, None, :], -torch.inf)
    looked = scores.softmax(dim=2)
    return torch.bmm(looked.to(memory.dtype), memory), looked


def reversed_within(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Rows [n, S, width] with the first `lengths` [n] of each the other way round; the rest stays in its place."""
    places = torch.arange(x.shape[1], device=x.device)
    order = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    return x.gather(1, order[:, :, None].expand_as(x))


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
        self.forwards, self.backwards = lstm(width, width), lstm(width, width)
        of_encoder = [lstm(2 * width, width), *(lstm(width, width) for _ in range(sizes.layers - 2))]
        self.encoder = nn.ModuleList(of_encoder)
        self.first, self.attention = lstm(width, width), Attention(width)
        self.decoder = nn.ModuleList(lstm(2 * width, width) for _ in range(sizes.layers - 1))
        self.classifier = nn.Linear(width, num_tokens)
        self.dropout = nn.Dropout(sizes.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -self.sizes.initial, self.sizes.initial)
        nn.init.constant_(self.attention.length, self.sizes.width**-0.5)
        nn.init.zeros_(self.attention.bias)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def encode(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Memory [n, S, width], its keys, and where it is real, of ids [n, S]; what lies behind an end changes none."""
        there = source != PAD
        lengths = there.sum(dim=1)
        x = self.dropout(self.embedding(source))
        backwards = reversed_within(self.backwards(reversed_within(x, lengths))[0], lengths)
        x = self.encoder[0](self.dropout(torch.cat((self.forwards(x)[0], backwards), dim=2)))[0]
        for layer in self.encoder[1:]:
            x = x + layer(self.dropout(x))[0]
        return x, self.attention.key(x), there

    def decode(
        self, inputs: torch.Tensor, memory: torch.Tensor, key: torch.Tensor, there: torch.Tensor,
        states: list[State] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, list[State]]:  # fmt: skip
        """Of the ids [n * beam, T]: what the classifier is given, what was looked at, and the layers' states behind it.

        With one id each, a sentence's `beam` hypotheses ask its memory, [n, S, width], together.
        """
        before: Sequence[State | None] = states or [None] * self.sizes.layers
        x, state = self.first(self.dropout(self.embedding(inputs)), before[0])
        after = [state]
        asking = x if len(x) == len(memory) else x.view(len(memory), -1, x.shape[2])
        seen, looked = self.attention(asking, key, memory, there)
        seen = seen.view(x.shape)
        for number, layer in enumerate(self.decoder, 1):
            added, state = layer(self.dropout(torch.cat((x, seen.to(x.dtype)), dim=2)), before[number])
            x = added if number == 1 else x + added
            after.append(state)
        return x, looked, after

    def forward(self, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """What the classifier is given, [n, T, width]."""
        x: torch.Tensor = self.decode(inputs, *self.encode(source))[0]
        return x


def lstm(inputs: int, width: int) -> nn.LSTM:
    return nn.LSTM(inputs, width, batch_first=True)


def classified_loss(
    classifier: nn.Linear, x: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, label_smoothing: float
) -> torch.Tensor:
    """The weighted sum of the smoothed cross entropies of labels [n, T], a scalar."""
    logits = classifier(x).flatten(0, 1).float()
    losses = F.cross_entropy(logits, labels.flatten(), reduction="none", label_smoothing=label_smoothing)
    return (losses * weights.flatten()).sum()


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
