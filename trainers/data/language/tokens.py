"""Tokens in existing files of llm.c's format, such as FineWeb's."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.language.data import SEQUENCE_LENGTH, VALIDATION_TOKENS, LanguageData, check_counts, num_sequences
from trainers.data.language.loader import Rows
from trainers.data.loading.prefetch import to_device
from trainers.data.loading.version import digest
from trainers.data.reading.folder_index import listed, resolved
from trainers.data.tokens import BytePairs, Made, TokenFile, token_files, tokenizer_of
from trainers.data.tokens.shards import HEADER_BYTES

log = logging.getLogger(__name__)
TRAIN, VALIDATION = "*train*.bin", "*val*.bin"


def tokens(
    path: str,
    sequence_length: int = SEQUENCE_LENGTH,
    validation_tokens: int | None = None,
    vocabulary: int | None = None,
    tokenizer: str | None = None,
) -> LanguageData:
    """Return the tokens of the files in folder `path`, trained on in the order of the files' names.

    With GPT-2's files as `tokenizer`, the bytes of text of the evaluation's tokens are known. Raises ConfigError,
    naming the file, for a file that cannot be read, and for missing files.
    """
    check_counts(sequence_length=sequence_length, vocabulary=vocabulary)
    train, validation = _parts(path)
    files = token_files([*train, *validation], sequence_length)
    size = files[0].format.vocabulary if vocabulary is None else vocabulary
    of_train = Windows(files[: len(train)], sequence_length, size)
    held = evaluated(files[len(train) :], sequence_length, size, validation_tokens)
    if validation_tokens is None and held.num_sequences < VALIDATION_TOKENS // sequence_length:
        log.warning("%s: evaluation has %d tokens; published losses are of the first %d",
                    path, held.num_sequences * sequence_length, VALIDATION_TOKENS)  # fmt: skip
    bytes_per_token = mean_bytes(held, bytes_of_ids(held.files[0], tokenizer)) if tokenizer else None
    return LanguageData(
        "tokens", size, sequence_length, of_train, held, lambda: version(files), bytes_per_token=bytes_per_token
    )


def mean_bytes(evaluated: Windows, of_ids: np.ndarray) -> float:
    """Return the mean bytes of text per target; `of_ids` are those of each id. Raises ConfigError for an unknown id."""
    counts = evaluated.target_counts(len(of_ids))
    return float(counts @ of_ids) / int(counts.sum())


def bytes_of_ids(file: TokenFile, tokenizer: str) -> np.ndarray:
    """Return the bytes of text of each id. Raises ConfigError if the file's tokens are another tokenizer's."""
    pairs, form = tokenizer_of(tokenizer), file.format
    if not isinstance(pairs, BytePairs) or pairs.vocabulary != form.vocabulary:
        raise ConfigError(
            f"dataset.tokenizer={tokenizer}: has {pairs.vocabulary:,} tokens, but the files have {form.tokenizer}"
            f" {form.vocabulary:,}. Next: give the folder of GPT-2's encoder.json and vocab.bpe, or leave it out"
        )
    return pairs.num_bytes()


def _parts(path: str) -> tuple[list[Path], list[Path]]:
    """Return the files to train on and to evaluate on. Raises ConfigError if either are missing."""
    root = resolved(path)
    files = listed(path, root)
    train, validation = ([file for file in files if file.match(pattern)] for pattern in (TRAIN, VALIDATION))
    if both := sorted({*train} & {*validation}):
        raise ConfigError(f"{both[0]}: its name matches both {TRAIN} and {VALIDATION}. Next: rename it")
    if train and validation:
        return train, validation
    raise ConfigError(
        f"dataset.path={path}: {root} has no {VALIDATION if train else TRAIN}. Next: set dataset.path to a folder with"
        f" files of llm.c's format, {TRAIN} and {VALIDATION}, as fineweb_train_000001.bin and fineweb_val_000000.bin"
    )


def evaluated(files: Sequence[TokenFile], sequence_length: int, vocabulary: int, num_tokens: int | None) -> Windows:
    """Return the first `num_tokens` of the files; None means up to VALIDATION_TOKENS. Raises ConfigError for more."""
    available = Windows(files, sequence_length, vocabulary).num_sequences
    if num_tokens is None:
        num = min(available, max(1, VALIDATION_TOKENS // sequence_length))
        return Windows(files, sequence_length, vocabulary, limit=num)
    num = num_sequences("validation_tokens", num_tokens, sequence_length)
    if num > available:
        raise ConfigError(
            f"dataset.validation_tokens={num_tokens}: {files[0].path.parent} has only {available * sequence_length:,}"
            " to evaluate on. Next: give as many or less"
        )
    return Windows(files, sequence_length, vocabulary, limit=num)


def version(files: Sequence[TokenFile]) -> str:
    """Return a digest of the files' names and contents, in the order in which they are read."""
    return digest([[file.path.name, file.digest()] for file in files])


def of_made(name: str, made: Made, sequence_length: int, validation_tokens: int | None) -> LanguageData:
    """Return files made from text as a dataset; the order of training sequences differs by epoch and seed.

    Raises ConfigError if a part is shorter than a sequence.
    """
    for part, number in zip(("train", "evaluate"), made.num_tokens, strict=True):
        if number <= sequence_length:
            raise ConfigError(
                f"dataset={name}: has {number:,} tokens to {part} on, but dataset.sequence_length={sequence_length}"
                f" needs {sequence_length + 1:,}, including the next token. Next: give more text, or a smaller"
                " sequence_length"
            )
    files = token_files([made.train, made.validation], sequence_length)
    train = Windows(files[:1], sequence_length, made.vocabulary, shuffled=True)
    held = evaluated(files[1:], sequence_length, made.vocabulary, validation_tokens)
    return LanguageData(
        name, made.vocabulary, sequence_length, train, held, lambda: version(files),
        bytes_per_token=mean_bytes(held, made.num_bytes), record=made.record,
    )  # fmt: skip


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
