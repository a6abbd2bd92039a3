"""A generated language whose entropy, and so the least loss of any model, is known exactly.

A token follows from the tokens before it and one random draw. The vocabulary is divided into `branches` ranges, whose
sizes grow geometrically. For each token one range is drawn, all with equal probability. The range j and the last
1 + j mod `order` tokens then determine the token within the range. So every context has exactly `branches` equally
probable successors, and

    entropy = ln(branches) nats a token

for every token except the first of a sequence, which is not a target. All ranges are equally frequent, so frequencies
of tokens roughly follow Zipf's law. Contexts of one token are learnt early, longer ones later, and rare ones last.

Each sequence is an independent text. Its draws follow from its place, so it is made without the sequences before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainers.ops.chance.counters import FIRST, GAMMA, SECOND, key_of

FORMAT = 1  # version of the generated text; raise it when the text changes
VOCABULARY = 50_257  # GPT-2's
ORDER, BRANCHES = 2, 16
LANGUAGE, TRAIN, VALIDATION, EXAMPLE = range(4)  # streams of random numbers
LOW_BITS = 2**62 - 1


@dataclass(frozen=True)
class Grammar:
    """The language, which these three numbers define completely."""

    vocabulary: int = VOCABULARY
    order: int = ORDER
    branches: int = BRANCHES

    @property
    def entropy(self) -> float:
        """Return the entropy in nats a token."""
        return math.log(self.branches)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Return the bounds of the ranges, int64 [branches + 1]: range j has the tokens bounds[j] to bounds[j + 1]."""
        bounds = [0]
        for number in range(1, self.branches + 1):
            bounds.append(max(bounds[-1] + 1, round(self.vocabulary ** (number / self.branches))))
        assert bounds[-1] == self.vocabulary
        return np.array(bounds, np.int64)

    @property
    def key(self) -> int:
        return key_of(LANGUAGE, FORMAT, self.vocabulary, self.order, self.branches)

    def sequences(self, places: np.ndarray, num_tokens: int, key: int) -> np.ndarray:
        """Return the sequences at `places` of the stream `key`: int32 [len(places), num_tokens]."""
        counters = places.astype(np.uint64)[:, None] * np.uint64(num_tokens) + np.arange(num_tokens, dtype=np.uint64)
        draws = np.ascontiguousarray(mixed(counters, key).T)
        ranges = (draws & np.uint64(LOW_BITS)).astype(np.int64) % self.branches
        sizes, depths = np.diff(self.bounds), np.arange(self.branches) % self.order
        contexts = np.zeros((self.order, len(places)), np.uint64)
        contexts[:] = mixed(draws[0], self.key)  # The first token has no context, so its draw decides.
        tokens = np.empty((num_tokens, len(places)), np.int64)
        each = np.arange(len(places))
        for place, chosen in enumerate(ranges):
            context = contexts[depths[chosen], each] + chosen.astype(np.uint64)
            within = (mixed(context, self.key + 1) & np.uint64(LOW_BITS)).astype(np.int64) % sizes[chosen]
            tokens[place] = self.bounds[chosen] + within
            self._append(contexts, tokens[place], first=place == 0)
        return np.ascontiguousarray(tokens.T, dtype=np.int32)

    def _append(self, contexts: np.ndarray, token: np.ndarray, first: bool) -> None:
        """Update the contexts: context d represents the last d + 1 tokens, or all tokens of a shorter sequence."""
        hashed = mixed(token.astype(np.uint64), self.key)
        if first:
            contexts[:] = hashed
            return
        contexts[1:] = contexts[:-1] * np.uint64(GAMMA) + hashed
        contexts[0] = hashed


def mixed(counters: np.ndarray, key: int) -> np.ndarray:
    """Compute trainers.ops.chance.counters.random_bits for uint64."""
    bits = counters * np.uint64(GAMMA) + np.uint64(key % 2**64)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(FIRST)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(SECOND)
    return bits ^ bits >> np.uint64(31)
