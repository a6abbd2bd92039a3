"""Subword vocabularies: from lines of text to ids, and back to readable text.

The first four ids are marks. The vocabulary's ids follow, and then unused ids up to a multiple of eight, which tensor
cores need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from conf.schema import ConfigError

PAD, UNKNOWN, BEGIN, END = range(4)
NUM_MARKS = 4
MULTIPLE = 8
JOIN = "@@"  # ends a piece that is not the last one of its word, as in subword-nmt


class Vocabulary(Protocol):
    name: str  # for messages
    size: int  # number of ids, including marks and unused ids

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all lines in a row, int32, and the number in each line, int64, without marks."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of any ids; marks are skipped."""
        ...


def rounded(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


class PieceList:
    """A vocabulary for text already split into pieces, as by subword-nmt: words, and parts that end in "@@".

    R. Sennrich et al. 2016, arXiv:1508.07909. Such text was tokenised by Moses' script; `decode` undoes that for
    `language`.
    """

    def __init__(self, name: str, pieces: Sequence[str], language: str) -> None:
        self.name, self.language = name, language
        self._pieces = list(pieces)
        self._ids = {piece: NUM_MARKS + place for place, piece in enumerate(self._pieces)}
        self.size = rounded(NUM_MARKS + len(self._pieces))

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        pieces = [line.split() for line in lines]
        ids = self._ids
        flat = [ids.get(piece, UNKNOWN) for line in pieces for piece in line]
        return np.array(flat, np.int32), np.array([len(line) for line in pieces], np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        last = NUM_MARKS + len(self._pieces)
        return self.joined(self._pieces[number - NUM_MARKS] for number in ids if NUM_MARKS <= number < last)

    def joined(self, pieces: Iterable[str]) -> str:
        """Return the text of any pieces, in the vocabulary or not."""
        words = f"{' '.join(pieces)} ".replace(f"{JOIN} ", "").split()
        return str(self._detokenizer.detokenize(words))

    @cached_property
    def _detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer  # Only tokenised text needs this import.

        return MosesDetokenizer(lang=self.language)


class SentencePiece:
    """A sentencepiece model, for plain text: T. Kudo and J. Richardson 2018, arXiv:1808.06226.

    Raises ConfigError for another file.
    """

    def __init__(self, path: Path) -> None:
        import sentencepiece  # Other vocabularies do not need this import.

        self.name = str(path)
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                f"{path}: is not a sentencepiece model ({str(error).splitlines()[0]}). Next: put the model of the text"
                " in place"
            ) from error
        self._num = self._model.get_piece_size()
        self._unknown = self._model.unk_id()
        self.size = rounded(NUM_MARKS + self._num)

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = self._model.encode(list(lines), num_threads=1)
        flat = np.array([number for line in encoded for number in line], np.int32)
        ids = np.where(flat == self._unknown, UNKNOWN, flat + NUM_MARKS).astype(np.int32)
        return ids, np.array([len(line) for line in encoded], np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [number - NUM_MARKS for number in ids if NUM_MARKS <= number < NUM_MARKS + self._num]
        return str(self._model.decode(pieces))


class Numbered:
    """A vocabulary of generated ids without text."""

    name = "generated ids"

    def __init__(self, size: int) -> None:
        self.size = size

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        raise AssertionError("generated ids have no text")

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(number) for number in ids if number >= NUM_MARKS)
