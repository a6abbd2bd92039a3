"""Consecutive sequences in files of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.language.loader import Rows
from trainers.data.loading.prefetch import to_device
from trainers.data.tokens.shards import HEADER_BYTES, TokenFile


@dataclass(frozen=True)
class Windows:
    """Implements Part: sequence n of a file starts at token n * sequence_length and includes the token after its end.

    A sequence does not cross files. Sequences come in the files' order or, if `shuffled`, in an order that differs by
    epoch and seed. `limit` is the most sequences.
    """

    files: Sequence[TokenFile]
    sequence_length: int
    vocabulary: int
    shuffled: bool = False
    limit: int | None = None

    @property
    def num_sequences(self) -> int:
        num = sum(self._counts())
        return num if self.limit is None else min(num, self.limit)

    def _counts(self) -> list[int]:
        return [(file.num_tokens - 1) // self.sequence_length for file in self.files]

    def rows(self, seed: int, epoch: int, device: torch.device) -> Rows:
        starts = np.cumsum([0, *self._counts()])
        order = np.random.RandomState([seed, epoch]).permutation(self.num_sequences) if self.shuffled else None
        opened: dict[int, np.ndarray] = {}

        def take(places: np.ndarray) -> torch.Tensor:
            chosen = places if order is None else order[places]
            of_file = np.searchsorted(starts, chosen, side="right") - 1
            for number in np.unique(of_file).tolist():
                if number not in opened:
                    opened[number] = self.files[number].tokens()
            first = (chosen - starts[of_file]) * self.sequence_length
            pieces = [
                opened[number][begin : begin + self.sequence_length + 1]
                for number, begin in zip(of_file.tolist(), first.tolist(), strict=True)
            ]
            tokens = np.stack(pieces)
            self._check(tokens, of_file, first)
            return to_device(tokens.astype(np.int32), device)

        return take

    def target_counts(self, vocabulary: int) -> np.ndarray:
        """Return how often each id is a target, int64 [vocabulary]. Raises ConfigError for an id out of range."""
        counts, left = np.zeros(vocabulary, np.int64), self.num_sequences
        for file, number in zip(self.files, self._counts(), strict=True):
            targets = file.tokens()[1 : 1 + min(left, number) * self.sequence_length]
            left -= min(left, number)
            if len(targets) and int(targets.max()) >= vocabulary:
                raise ConfigError(
                    f"{file.path}: has the id {int(targets.max())}, but dataset.tokenizer has ids below {vocabulary}."
                    " Next: make the file anew, or leave the tokenizer out"
                )
            counts += np.bincount(targets, minlength=vocabulary)
        return counts

    def _check(self, tokens: np.ndarray, of_file: np.ndarray, first: np.ndarray) -> None:
        """Raise ConfigError for an id that is out of range; a GPU would only fail with an assertion."""
        if int(tokens.max()) < self.vocabulary:
            return
        row, column = np.argwhere(tokens >= self.vocabulary)[0].tolist()
        place = int(first[row]) + column
        file = self.files[int(of_file[row])]
        raise ConfigError(
            f"{file.path}: its token {place:,}, at byte {HEADER_BYTES + place * tokens.itemsize:,}, is"
            f" {int(tokens[row, column])}, but the vocabulary has ids below {self.vocabulary}. Next: make the file"
            " anew, or set dataset.vocabulary to the number of ids of its tokenizer"
        )
