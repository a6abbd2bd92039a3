"""Tokens that somebody made of text before, in files of llm.c's format, such as FineWeb's."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.language.data import SEQUENCE_LENGTH, VALIDATION_TOKENS, LanguageData, check_counts, num_sequences
from trainers.data.language.windows import Windows
from trainers.data.loading.version import digest
from trainers.data.reading.folder_index import listed, resolved
from trainers.data.tokens import BytePairs, Made, TokenFile, token_files, tokenizer_of

log = logging.getLogger(__name__)
TRAIN, VALIDATION = "*train*.bin", "*val*.bin"


def tokens(
    path: str,
    sequence_length: int = SEQUENCE_LENGTH,
    validation_tokens: int | None = None,
    vocabulary: int | None = None,
    tokenizer: str | None = None,
) -> LanguageData:
    """The files in folder `path`. Trained on as they lie, in the order of their names.

    With GPT-2's files as `tokenizer` it is known how many bytes of text the tokens to evaluate on stand for. Raises
    ConfigError, with the file's name, for what cannot be read, and where there is no file.
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
    """Bytes of text a target, of those that each id stands for. Raises ConfigError for an id that is none of these."""
    counts = evaluated.target_counts(len(of_ids))
    return float(counts @ of_ids) / int(counts.sum())


def bytes_of_ids(file: TokenFile, tokenizer: str) -> np.ndarray:
    """Bytes of text that each id stands for. Raises ConfigError for a tokenizer that the file's tokens are not of."""
    pairs, form = tokenizer_of(tokenizer), file.format
    if not isinstance(pairs, BytePairs) or pairs.vocabulary != form.vocabulary:
        raise ConfigError(
            f"dataset.tokenizer={tokenizer}: has {pairs.vocabulary:,} tokens, and the files are of {form.tokenizer}"
            f" {form.vocabulary:,}; give the folder of GPT-2's encoder.json and vocab.bpe, or leave it out"
        )
    return pairs.num_bytes()


def _parts(path: str) -> tuple[list[Path], list[Path]]:
    """The files to train on and to evaluate on. Raises ConfigError where there are none of either."""
    root = resolved(path)
    there = listed(path, root)
    train, validation = ([file for file in there if file.match(pattern)] for pattern in (TRAIN, VALIDATION))
    if both := sorted({*train} & {*validation}):
        raise ConfigError(f"{both[0]}: its name is that of both parts ({TRAIN} and {VALIDATION}); rename it")
    if train and validation:
        return train, validation
    raise ConfigError(
        f"dataset.path={path}: {root} holds no {VALIDATION if train else TRAIN}; set dataset.path to a folder with"
        f" files of llm.c's format, {TRAIN} and {VALIDATION}, as fineweb_train_000001.bin and fineweb_val_000000.bin"
    )


def evaluated(files: Sequence[TokenFile], sequence_length: int, vocabulary: int, asked: int | None) -> Windows:
    """The first `asked` tokens of the files, or VALIDATION_TOKENS, or all. Raises ConfigError where more were asked."""
    there = Windows(files, sequence_length, vocabulary).num_sequences
    if asked is None:
        num = min(there, max(1, VALIDATION_TOKENS // sequence_length))
        return Windows(files, sequence_length, vocabulary, limit=num)
    num = num_sequences("validation_tokens", asked, sequence_length)
    if num > there:
        raise ConfigError(
            f"dataset.validation_tokens={asked}: {files[0].path.parent} has {there * sequence_length:,} to evaluate on;"
            " give as many or less"
        )
    return Windows(files, sequence_length, vocabulary, limit=num)


def version(files: Sequence[TokenFile]) -> str:
    """Of names and contents, in the order in which they are read."""
    return digest([[file.path.name, file.digest()] for file in files])


def of_made(name: str, made: Made, sequence_length: int, validation_tokens: int | None) -> LanguageData:
    """Files that are made of text. Sequences are trained on in another order in each epoch and of each seed.

    Raises ConfigError where a part is shorter than a sequence.
    """
    for part, number in zip(("train", "evaluate"), made.num_tokens, strict=True):
        if number <= sequence_length:
            raise ConfigError(
                f"dataset={name}: there are {number:,} tokens to {part} on, and a sequence of dataset.sequence_length="
                f"{sequence_length} takes {sequence_length + 1:,} with the token behind it; give more text, or a"
                " smaller sequence_length"
            )
    files = token_files([made.train, made.validation], sequence_length)
    train = Windows(files[:1], sequence_length, made.vocabulary, shuffled=True)
    held = evaluated(files[1:], sequence_length, made.vocabulary, validation_tokens)
    return LanguageData(
        name, made.vocabulary, sequence_length, train, held, lambda: version(files),
        bytes_per_token=mean_bytes(held, made.num_bytes), record=made.record,
    )  # fmt: skip
