"""Small texts as people have them, written for a test."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainers.data.text.corpus import Corpus

PIECES = ("the", "d@@", "og", "hund", "der", "b@@", "ell@@", "t", "bar@@", "ks")
TRAIN = {"en": ["the d@@ og bar@@ ks", "the d@@ og"], "de": ["der hund b@@ ell@@ t", "der hund"]}
HELD = {"en": ["the d@@ og"], "de": ["der hund"]}
TRAIN_NAME, HELD_NAME, VOCABULARY = "train.tok.clean.bpe.32000", "newstest2014.tok.bpe.32000", "vocab.bpe.32000"


def write(folder: Path, **replaced: str | bytes) -> Path:
    """MLPerf's layout; a file is replaced by its name, with dots as underscores."""
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, str | bytes] = {VOCABULARY: "".join(f"{piece} 7\n" for piece in PIECES)}
    for name, sides in ((TRAIN_NAME, TRAIN), (HELD_NAME, HELD)):
        contents |= {f"{name}.{side}": "".join(f"{line}\n" for line in lines) for side, lines in sides.items()}
    for name, content in contents.items():
        given = replaced.get(name.replace(".", "_"), content)
        (folder / name).write_bytes(given if isinstance(given, bytes) else given.encode())
    return folder


def corpus(source: list[list[int]], target: list[list[int]]) -> Corpus:
    """Pairs of ids, without marks."""
    sides = []
    for side in (source, target):
        ids = np.array([number for sentence in side for number in sentence], np.int32)
        sides += [ids, np.concatenate(([0], np.cumsum([len(sentence) for sentence in side]))).astype(np.int64)]
    return Corpus(*sides)


def random_corpus(num: int, tokens: int = 40, longest: int = 12, seed: int = 0) -> Corpus:
    rng = np.random.RandomState(seed)
    sides = [[rng.randint(4, tokens, rng.randint(1, longest)).tolist() for _ in range(num)] for _ in range(2)]
    return corpus(*sides)
