"""Sequences of tokens as a dataset for language models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from conf.schema import ConfigError
from trainers.data.language.loader import EvalLoader, Part, TrainLoader, batch

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

SEQUENCE_LENGTH = 1024
MAX_VOCABULARY = 2**31 - 1
RECORD = "data_files.txt"
VALIDATION_TOKENS = 10_485_760  # the tokens of FineWeb's validation shard on which published losses are measured


@dataclass(frozen=True)
class LanguageData:
    """Implements Data, InTokens, Recorded and Versioned of trainers.data.loading.types. A sample is a token.

    - `vocabulary`: ids run from 0 to vocabulary - 1
    - `sequence_length`: tokens of a sequence
    - `bytes_per_token`: mean bytes of text of an evaluation's token; None if unknown, or without text. A loss of x nats
      a token is x / ln 2 / bytes_per_token bits a byte.
    - `entropy`: lower bound of any model's loss, in nats a token; None if unknown

    Batches are those of trainers.data.language.loader: `inputs`, `targets`, `num_samples` and `num_tokens`.
    """

    name: str
    vocabulary: int
    sequence_length: int
    train: Part
    validation: Part | None
    digest: Callable[[], str]
    example: Callable[[int, torch.device], torch.Tensor] | None = None  # int32 [rows, T + 1]; by default random ids
    bytes_per_token: float | None = None
    entropy: float | None = None
    record: str = ""  # names of the text files from which the tokens were made, one a line

    @property
    def train_tokens(self) -> int:
        """Return the number of targets in an epoch."""
        return self.train.num_sequences * self.sequence_length

    @property
    def validation_tokens(self) -> int:
        """Return the number of targets in an evaluation."""
        return self.validation.num_sequences * self.sequence_length if self.validation else 0

    @property
    def num_train(self) -> int:
        return self.train_tokens

    @property
    def num_eval(self) -> int:
        return self.validation_tokens

    @property
    def num_train_tokens(self) -> int:
        return self.train_tokens

    @property
    def longest(self) -> int:
        return self.sequence_length

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """Return one batch, since all batches have one shape."""
        rows = max(1, batch_size // self.sequence_length)
        return [batch((self.example or self._random)(rows, device), rows)]

    def _random(self, rows: int, device: torch.device) -> torch.Tensor:
        generator = torch.Generator(device).manual_seed(0)
        shape = (rows, self.sequence_length + 1)
        return torch.randint(self.vocabulary, shape, generator=generator, device=device, dtype=torch.int32)

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> TrainLoader:
        return TrainLoader(self.train, self.sequence_length, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> EvalLoader | None:
        return EvalLoader(self.validation, self.sequence_length, batch_size, shard) if self.validation else None

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def version(self) -> str:
        return self.digest()

    def facts(self) -> dict[str, str]:
        known = {"entropy": self.entropy, "bytes_per_token": self.bytes_per_token}
        return {f"data.{name}": f"{value:.6f}" for name, value in known.items() if value is not None}

    def write_record(self, run_dir: Path) -> None:
        if self.record:
            # surrogateescape keeps bytes of names that are not UTF-8.
            (run_dir / RECORD).write_bytes(self.record.encode(errors="surrogateescape"))


def check_counts(**options: int | None) -> None:
    """Raise ConfigError for a dataset option below 1, or too large a vocabulary; None means that it is not set."""
    for name, value in options.items():
        if value is not None and value < 1:
            raise ConfigError(f"dataset.{name}={value}: must be 1 or more")
        if name == "vocabulary" and value is not None and value > MAX_VOCABULARY:
            raise ConfigError(f"dataset.vocabulary={value}: must be up to {MAX_VOCABULARY:,}, since ids are int32")


def num_sequences(key: str, tokens: int, sequence_length: int) -> int:
    """Return the number of whole sequences in `tokens`, the value of dataset.`key`. Raises ConfigError for zero."""
    if tokens < sequence_length:
        raise ConfigError(
            f"dataset.{key}={tokens}: is less than a sequence, dataset.sequence_length={sequence_length}. Next: give"
            f" {sequence_length} or more"
        )
    return tokens // sequence_length
