"""A generated language whose entropy is known exactly, so that the least loss of any model is, too.

A token follows from those before it and one draw. The vocabulary is cut into `branches` ranges, whose sizes grow
geometrically. For each token one range is drawn, all with the same probability; which token of the range follows is
decided by the range and the last 1 to `order` tokens: of range j by the last 1 + j mod `order`. So every context has
exactly `branches` successors of one probability, and

    entropy = ln(branches) nats a token

of every token but the first of a sequence, which is no target. As each range is drawn as often, tokens are about as
frequent as Zipf's law has it. Contexts of one token are soon learnt, those of more later, and rare ones last.

Each sequence is a text of its own. Its draws follow from its place, so any sequence is made without those before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainers.ops.chance.counters import FIRST, GAMMA, SECOND, key_of

FORMAT = 1  # The version of what is generated. Raise it when that changes.
VOCABULARY = 50_257  # GPT-2's
ORDER, BRANCHES = 2, 16
LANGUAGE, TRAIN, VALIDATION, EXAMPLE = range(4)  # streams of random numbers
LOW_BITS = 2**62 - 1


@dataclass(frozen=True)
class Grammar:
    """The language itself, which follows from these three alone."""

    vocabulary: int = VOCABULARY
    order: int = ORDER
    branches: int = BRANCHES

    @property
    def entropy(self) -> float:
        """Nats a token."""
        return math.log(self.branches)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Range j has the tokens from bounds[j] to bounds[j + 1]: int64 [branches + 1]."""
        bounds = [0]
        for number in range(1, self.branches + 1):
            bounds.append(max(bounds[-1] + 1, round(self.vocabulary ** (number / self.branches))))
        assert bounds[-1] == self.vocabulary
        return np.array(bounds, np.int64)

    @property
    def key(self) -> int:
        return key_of(LANGUAGE, FORMAT, self.vocabulary, self.order, self.branches)

    def sequences(self, places: np.ndarray, num_tokens: int, key: int) -> np.ndarray:
        """So many tokens of the sequences at `places` of the stream `key`: int32 [len(places), num_tokens]."""
        counters = places.astype(np.uint64)[:, None] * np.uint64(num_tokens) + np.arange(num_tokens, dtype=np.uint64)
        draws = np.ascontiguousarray(mixed(counters, key).T)
        ranges = (draws & np.uint64(LOW_BITS)).astype(np.int64) % self.branches
        sizes, depths = np.diff(self.bounds), np.arange(self.branches) % self.order
        contexts = np.zeros((self.order, len(places)), np.uint64)
        contexts[:] = mixed(draws[0], self.key)  # Before the first token there is none, and its draw decides.
        tokens = np.empty((num_tokens, len(places)), np.int64)
        each = np.arange(len(places))
        for place, chosen in enumerate(ranges):
            context = contexts[depths[chosen], each] + chosen.astype(np.uint64)
            within = (mixed(context, self.key + 1) & np.uint64(LOW_BITS)).astype(np.int64) % sizes[chosen]
            tokens[place] = self.bounds[chosen] + within
            self._append(contexts, tokens[place], first=place == 0)
        return np.ascontiguousarray(tokens.T, dtype=np.int32)

    def _append(self, contexts: np.ndarray, token: np.ndarray, first: bool) -> None:
        """Context d stands for the last d + 1 tokens, or for all where a sequence has not as many yet."""
        own = mixed(token.astype(np.uint64), self.key)
        if first:
            contexts[:] = own
            return
        contexts[1:] = contexts[:-1] * np.uint64(GAMMA) + own
        contexts[0] = own


def mixed(counters: np.ndarray, key: int) -> np.ndarray:
    """trainers.ops.chance.counters.random_bits, of uint64."""
    bits = counters * np.uint64(GAMMA) + np.uint64(key % 2**64)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(FIRST)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(SECOND)
    return bits ^ bits >> np.uint64(31)
