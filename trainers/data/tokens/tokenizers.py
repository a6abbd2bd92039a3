"""Tokenizers: bytes, GPT-2's byte pairs, and sentencepiece models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from conf.schema import ConfigError
from tracking.base.paths import with_home
from trainers.data.reading.regular_file import opened
from trainers.data.tokens.byte_pairs import BytePairs

BYTES = "bytes"
NUM_BYTES = 256
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # sentencepiece's character for a space


class Tokenizer(Protocol):
    vocabulary: int  # number of ids
    separator: int  # the id that begins a text
    files: Sequence[Path]  # that define it

    def encode(self, text: str) -> np.ndarray:
        """Return ids int64, without the separator."""
        ...

    def num_bytes(self) -> np.ndarray:
        """Return the bytes of text of each id, int64 [vocabulary]; 0 for the separator."""
        ...


class Bytes:
    """Implements Tokenizer: an id is a byte of UTF-8."""

    vocabulary, separator = NUM_BYTES + 1, NUM_BYTES
    files: Sequence[Path] = ()

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int64)

    def num_bytes(self) -> np.ndarray:
        return (np.arange(self.vocabulary) < NUM_BYTES).astype(np.int64)


class Pieces:
    """Implements Tokenizer with a sentencepiece model. Raises ConfigError for another file.

    The separator is the model's begin mark, else its end mark, else its unknown piece.
    """

    def __init__(self, path: Path) -> None:
        import sentencepiece  # Other tokenizers do not need this import.

        self._model: Any = sentencepiece.SentencePieceProcessor()
        try:
            with opened(path) as file:
                self._model.LoadFromSerializedProto(file.read())
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                f"dataset.tokenizer={path}: is not a sentencepiece model ({str(error).splitlines()[0]}). Next: give"
                f" one, a folder with GPT-2's encoder.json and vocab.bpe, or {BYTES}"
            ) from error
        self.files: Sequence[Path] = [path]
        self.vocabulary = int(self._model.get_piece_size())
        marks = (self._model.bos_id(), self._model.eos_id(), self._model.unk_id())
        self.separator = next(mark for mark in marks if mark >= 0)

    def encode(self, text: str) -> np.ndarray:
        lines = self._model.encode(text.splitlines(keepends=True), num_threads=1)  # Line by line is faster.
        return np.array([number for line in lines for number in line], np.int64)

    def num_bytes(self) -> np.ndarray:
        """Return the bytes of text of each id; 0 for unknown pieces, whose text the id does not tell."""
        return np.array([self._bytes_of(number) for number in range(self.vocabulary)], np.int64)

    def _bytes_of(self, number: int) -> int:
        if self._model.is_byte(number):
            return 1
        marks = (self._model.is_control, self._model.is_unknown, self._model.is_unused)
        if any(is_mark(number) for is_mark in marks):
            return 0
        return len(self._model.id_to_piece(number).replace(SPACE, " ").encode())


def tokenizer_of(name: str) -> Tokenizer:
    """Return the tokenizer: `bytes`, a folder of GPT-2's files or one of them, or a sentencepiece model.

    Raises ConfigError for other files.
    """
    if name == BYTES:
        return Bytes()
    path = with_home(name)
    if path.suffix in (".bpe", ".json", ".txt"):
        path = path.parent
    return BytePairs(path) if path.is_dir() else Pieces(path)


def learn(lines: Iterable[str], vocabulary: int, model: Path) -> None:
    """Let sentencepiece learn byte-pair pieces of lines, which can encode every text without loss.

    The same lines give the same file. There may be fewer pieces than asked for, if the lines have no more. Raises
    ConfigError for too small a vocabulary.
    """
    import sentencepiece

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(model.with_suffix("")), model_type="bpe",
            vocab_size=vocabulary, hard_vocab_limit=False, byte_fallback=True, character_coverage=0.9995,
            normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
            allow_whitespace_only_pieces=True, max_sentence_length=1 << 14, unk_id=0, bos_id=1, eos_id=-1, pad_id=-1,
            num_threads=1, minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        raise ConfigError(
            f"dataset.vocabulary={vocabulary}: sentencepiece cannot learn pieces ({str(error).splitlines()[0]}). Next:"
            f" give more, or dataset.tokenizer={BYTES}"
        ) from error
    model.with_suffix(".vocab").unlink()
