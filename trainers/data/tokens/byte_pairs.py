"""GPT-2's byte-pair encoding, from its two files: the pieces with their ids, and the order in which pairs are merged.

A. Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". The files are `encoder.json` and
`vocab.bpe`, also called `vocab.json` and `merges.txt`. They write bytes as visible characters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from conf.schema import ConfigError

NAMES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
SEPARATOR = "<|endoftext|>"
# Pairs are merged only within a match: a word, a number or other signs with the space before, or spaces.
WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
KEPT_WORDS = 1 << 18  # words whose ids are cached
NEXT_STEP = "put GPT-2's original files there"


def _visible_characters() -> list[str]:
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = (chr(number) for number in range(256, 512))
    return [chr(byte) if byte in visible else next(others) for byte in range(256)]


VISIBLE = _visible_characters()  # the visible character for each byte: its own, or one from 256 on


class BytePairs:
    """Implements Tokenizer. Raises ConfigError, naming the file, for files that do not belong to one encoding."""

    files: Sequence[Path]

    def __init__(self, folder: Path) -> None:
        import regex  # Only text without tokens needs this import.

        pieces, merges = files_in(folder)
        self.files = [pieces, merges]
        self._ids = _read_pieces(pieces)
        self._ranks = _read_merges(merges, self._ids, pieces)
        self.vocabulary = len(self._ids)
        self.separator = self._ids[SEPARATOR]
        self._find = regex.compile(WORDS).findall
        self._word = lru_cache(KEPT_WORDS)(self._cut)

    def encode(self, text: str) -> np.ndarray:
        ids = list(chain.from_iterable(map(self._word, self._find(text))))
        return np.array(ids, np.int64)

    def num_bytes(self) -> np.ndarray:
        """Return the bytes of text of each id, int64 [vocabulary]; 0 for the separator."""
        lengths = np.zeros(self.vocabulary, np.int64)
        for piece, number in self._ids.items():
            lengths[number] = 0 if piece == SEPARATOR else len(piece)
        return lengths

    def _cut(self, word: str) -> list[int]:
        parts = [VISIBLE[byte] for byte in word.encode()]
        while len(parts) > 1:
            pair = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if pair not in self._ranks:
                break
            parts = list(_joined(parts, pair))
        return [self._ids[part] for part in parts]


def _joined(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Return the parts with each occurrence of the pair merged, from the left."""
    out, place = [], 0
    while place < len(parts):
        both = place + 1 < len(parts) and (parts[place], parts[place + 1]) == pair
        out.append(parts[place] + parts[place + 1] if both else parts[place])
        place += 2 if both else 1
    return out


def files_in(folder: Path) -> tuple[Path, Path]:
    """Return the file of pieces and that of pairs. Raises ConfigError if they are missing."""
    for names in NAMES:
        pieces, merges = (folder / name for name in names)
        if pieces.is_file() and merges.is_file():
            return pieces, merges
    file_names = " or ".join(" and ".join(names) for names in NAMES)
    raise ConfigError(f"dataset.tokenizer={folder}: has no {file_names}. Next: {NEXT_STEP}")


def _read_pieces(path: Path) -> dict[str, int]:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON ({error}). Next: {NEXT_STEP}") from error
    numbers = list(content.values()) if isinstance(content, dict) else []
    if not all(type(number) is int for number in numbers) or {*numbers} != {*range(len(numbers))} or not numbers:
        raise ConfigError(f"{path}: must give each piece an id, from 0 on. Next: {NEXT_STEP}")
    lacking = [piece for piece in (SEPARATOR, *VISIBLE) if piece not in content]
    if lacking:
        raise ConfigError(f"{path}: lacks the piece {lacking[0]!r}. Next: {NEXT_STEP}")
    pieces: dict[str, int] = content
    return pieces


def _read_merges(path: Path, ids: dict[str, int], pieces: Path) -> dict[tuple[str, str], int]:
    """Return the order of the pairs, from lines of two pieces."""
    ranks: dict[tuple[str, str], int] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}). Next: {NEXT_STEP}") from error
    for number, line in enumerate(lines, 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = tuple(line.split(" "))
        if len(pair) != 2:
            raise ConfigError(f"{path}, line {number}: {line[:40]!r} must be two pieces. Next: {NEXT_STEP}")
        if not {*pair, "".join(pair)} <= ids.keys():
            raise ConfigError(
                f"{path}, line {number}: {pieces.name} has no id for {line[:40]!r} joined. Next: {NEXT_STEP}"
            )
        ranks[pair] = len(ranks)
    return ranks
