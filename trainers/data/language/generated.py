"""The generated language as a dataset, whose sequences are made on demand, on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.language.data import SEQUENCE_LENGTH, LanguageData, check_counts, num_sequences
from trainers.data.language.grammar import BRANCHES, EXAMPLE, ORDER, TRAIN, VALIDATION, VOCABULARY, Grammar
from trainers.data.language.loader import Rows
from trainers.data.loading.prefetch import to_device
from trainers.data.loading.version import digest
from trainers.ops.chance.counters import key_of

MOST_ORDER = 8
TRAIN_TOKENS = 3_250 * 524_288  # steps times batch of the published training at GPT-2's size
VALIDATION_TOKENS = 1_048_576


@dataclass(frozen=True)
class GeneratedPart:
    """Implements Part. Training sequences differ by epoch and seed; validation sequences are always the same."""

    grammar: Grammar
    num_sequences: int
    sequence_length: int
    stream: int

    def rows(self, seed: int, epoch: int, device: torch.device) -> Rows:
        key = key_of(self.stream, seed, epoch) if self.stream == TRAIN else key_of(self.stream)
        num_tokens = self.sequence_length + 1
        if device.type != "cuda":
            return lambda places: torch.from_numpy(self.grammar.sequences(places, num_tokens, key))
        from trainers.data.language import grammar_triton

        tables = grammar_triton.tables(self.grammar, device)
        return lambda places: grammar_triton.sequences(self.grammar, tables, to_device(places, device), num_tokens, key)

    def example(self, num_rows: int, device: torch.device) -> torch.Tensor:
        """Return sequences of a separate stream; on a GPU this compiles the kernel before the clock starts."""
        return replace(self, stream=EXAMPLE).rows(0, 0, device)(np.arange(num_rows))


def grammar(
    vocabulary: int = VOCABULARY,
    order: int = ORDER,
    branches: int = BRANCHES,
    train_tokens: int = TRAIN_TOKENS,
    validation_tokens: int = VALIDATION_TOKENS,
    sequence_length: int = SEQUENCE_LENGTH,
) -> LanguageData:
    """Return the language with these options. Raises ConfigError for an invalid option."""
    check_counts(order=order, vocabulary=vocabulary, sequence_length=sequence_length)
    if order > MOST_ORDER:
        raise ConfigError(f"dataset.order={order}: must be 1 to {MOST_ORDER}, the tokens that decide the next one")
    if not 2 <= branches <= vocabulary:
        raise ConfigError(
            f"dataset.branches={branches}: must be 2 to dataset.vocabulary={vocabulary}, the successors of each token"
        )
    language = Grammar(vocabulary, order, branches)
    train, validation = (
        GeneratedPart(language, num_sequences(key, tokens, sequence_length), sequence_length, stream)
        for key, tokens, stream in (
            ("train_tokens", train_tokens, TRAIN), ("validation_tokens", validation_tokens, VALIDATION),
        )
    )  # fmt: skip
    words = [str(number) for number in (language.key, train.num_sequences, validation.num_sequences, sequence_length)]
    return LanguageData(
        "grammar", vocabulary, sequence_length, train, validation, lambda: digest([words]), train.example,
        entropy=language.entropy,
    )  # fmt: skip
