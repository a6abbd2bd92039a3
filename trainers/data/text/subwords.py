"""Tensor2tensor's subwords, which MLPerf's Transformer uses for plain text: from lines to ids, and back.

A text is split into tokens, each a run of letters and digits or of other characters; a single space between two tokens
of the former kind is omitted. A token ends in "_", so "_" itself, the backslash and characters missing in the
vocabulary are escaped. From the left, a token is split into the longest subwords of the vocabulary. Source of the
format: tensor2tensor's SubwordTextEncoder (A. Vaswani et al. 2018, arXiv:1803.07416).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.text.corpus import read_lines
from trainers.data.text.vocabulary import NUM_MARKS, UNKNOWN, rounded

NOT_TEXT = ("<pad>", "<EOS>")  # the first two subwords of a file, which are marks
QUOTES = "'\""
ALWAYS = set("\\_u;0123456789")  # characters of escapes
RUNS = re.compile(r"[^\W_]+|[\W_]+")
ESCAPED = re.compile(r"\\u|\\\\|\\([0-9]+);")
KEPT_TOKENS = 1 << 20  # tokens whose ids are cached


class Subwords:
    """A file of subwords, one a line, with or without quotes. Raises ConfigError, naming the line, for another file."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        lines = [line for part in read_lines(path, "it names no subword. Next: remove the line") for line in part]
        self._subwords = [unquoted(line) for line in lines]
        self._ids = {
            subword: NUM_MARKS + place for place, subword in enumerate(self._subwords) if subword not in NOT_TEXT
        }
        if not any(subword.endswith("_") for subword in self._ids):
            raise ConfigError(
                f"{path}: has no subword that ends in _, as tensor2tensor's do. Next: put the vocabulary of the text"
                " in place"
            )
        self._characters = ALWAYS.union(*self._ids)
        self._longest = max(map(len, self._ids))
        self.size = rounded(NUM_MARKS + len(self._subwords))
        self._cut = lru_cache(KEPT_TOKENS)(self._cut_token)

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = [[number for token in tokens(line.strip()) for number in self._cut(token)] for line in lines]
        flat = np.array([number for ids in encoded for number in ids], np.int32)
        return flat, np.array([len(ids) for ids in encoded], np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        last = NUM_MARKS + len(self._subwords)
        subwords = [self._subwords[number - NUM_MARKS] for number in ids if NUM_MARKS <= number < last]
        escaped = "".join(subword for subword in subwords if subword not in NOT_TEXT).split("_")
        words = [unescaped(token) for token in escaped if token]
        spaces = [" " if word[0].isalnum() and following[0].isalnum() else "" for word, following in pairwise(words)]
        return "".join(chain.from_iterable(zip(words, [*spaces, ""], strict=True))) if words else ""

    def _cut_token(self, token: str) -> tuple[int, ...]:
        escaped = self._escaped(token)
        ids, start = [], 0
        while start < len(escaped):
            ends = range(min(len(escaped), start + self._longest), start, -1)
            end = next((end for end in ends if escaped[start:end] in self._ids), None)
            ids.append(UNKNOWN if end is None else self._ids[escaped[start:end]])
            start = end or start + 1
        return tuple(ids)

    def _escaped(self, token: str) -> str:
        token = token.replace("\\", "\\\\").replace("_", "\\u")
        return "".join(c if c in self._characters else f"\\{ord(c)};" for c in token) + "_"


def unquoted(line: str) -> str:
    line = line.strip(" ")
    return line[1:-1] if len(line) > 2 and line[0] == line[-1] and line[0] in QUOTES else line


def tokens(text: str) -> list[str]:
    """Return runs of characters of one kind, without single spaces between runs."""
    runs = RUNS.findall(text)
    return [run for place, run in enumerate(runs) if run != " " or place == 0]


def unescaped(token: str) -> str:
    """Replace escapes by their characters; an invalid number becomes a replacement character."""

    def character(match: re.Match[str]) -> str:
        if match[1] is None:
            return "_" if match[0] == "\\u" else "\\"
        return chr(int(match[1])) if int(match[1]) < 0x110000 else "\u3013"

    return ESCAPED.sub(character, token)
