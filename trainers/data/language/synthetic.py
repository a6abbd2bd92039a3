"""Random ids on the device, to measure it without the input pipeline; there is no evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from trainers.data.language.data import SEQUENCE_LENGTH, LanguageData, check_counts
from trainers.data.language.loader import Rows
from trainers.data.loading.synthetic_loader import NUM_BATCHES
from trainers.data.loading.version import digest
from trainers.ops.chance.counters import key_of

VOCABULARY = 50_257  # GPT-2's
SIZE = 512 * 40  # sequences in an epoch
STREAM = 0x5EED


@dataclass(frozen=True)
class RandomPart:
    """Implements Part: a few batches in turn, each made at its first use."""

    vocabulary: int
    num_sequences: int
    sequence_length: int

    def rows(self, seed: int, epoch: int, device: torch.device) -> Rows:
        made: dict[int, torch.Tensor] = {}

        def take(places: np.ndarray) -> torch.Tensor:
            number = int(places[0]) // len(places) % NUM_BATCHES
            if number not in made:
                generator = torch.Generator(device).manual_seed(key_of(STREAM, seed, number) // 2)
                shape = (len(places), self.sequence_length + 1)
                made[number] = torch.randint(
                    self.vocabulary, shape, generator=generator, device=device, dtype=torch.int32
                )
            return made[number]

        return take


def synthetic(size: int = SIZE, vocabulary: int = VOCABULARY, sequence_length: int = SEQUENCE_LENGTH) -> LanguageData:
    """Return the dataset with `size` sequences an epoch. Raises ConfigError for a number below 1."""
    check_counts(size=size, vocabulary=vocabulary, sequence_length=sequence_length)
    part = RandomPart(vocabulary, size, sequence_length)
    words = [str(number) for number in (size, vocabulary, sequence_length)]
    return LanguageData("synthetic", vocabulary, sequence_length, part, None, lambda: digest([words]))
