"""Packs several sentences into each row, so that all batches have one shape with little padding.

A sentence's number in its row keeps attention within the sentence: M. Kosec et al. 2021, arXiv:2107.02027.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from trainers.data.loading.position import Positioned
from trainers.data.loading.prefetch import all_to_device, prefetch
from trainers.data.text.corpus import Corpus
from trainers.data.text.loader import check_room
from trainers.data.text.vocabulary import BEGIN, END, PAD

if TYPE_CHECKING:
    import torch

    from trainers.data.loading.types import Batch, Shard

MULTIPLE = 8  # Tensor cores need rows of a multiple of so many tokens.


def row_lengths(source: np.ndarray, target: np.ndarray, room: int) -> tuple[int, int]:
    """Return the tokens of a row's source and target: `room` for the language that needs more, less for the other.

    Each has at least the tokens of the language's longest sentence.
    """
    totals = np.array([source.sum(), target.sum()])
    share = room * totals / totals.max()
    longest = [int(source.max()), int(target.max())]
    rows = [-(-max(int(np.ceil(part)), most) // MULTIPLE) * MULTIPLE for part, most in zip(share, longest, strict=True)]
    return rows[0], rows[1]


def rows_of(source: np.ndarray, target: np.ndarray, width: tuple[int, int]) -> np.ndarray:
    """Return the first pair of each row, and then the number of pairs, int64, for pairs of these lengths in order.

    A row ends before the first pair that does not fit into it.
    """
    ends = []
    for lengths, room in zip((source, target), width, strict=True):
        before = np.concatenate(([0], lengths.cumsum()))
        ends.append(np.searchsorted(before, before[:-1] + room, side="right") - 1)
    following = np.minimum(*ends).tolist()
    starts = [0]
    while starts[-1] < len(following):
        starts.append(following[starts[-1]])
    return np.array(starts, np.int64)


class PackedLoader(Positioned):
    """One process's share of the training pairs; over all processes each pair counts exactly once an epoch.

    One permutation per seed, the same on all processes, is packed into rows, so that all epochs have equally many rows.
    Each epoch shuffles the rows into global batches; the last one is padded with empty rows.
    """

    def __init__(self, corpus: Corpus, pairs: np.ndarray, room: int, batch_size: int, seed: int, shard: Shard) -> None:
        self.corpus, self.seed, self.shard = corpus, seed, shard
        self._lengths = corpus.lengths()
        source, target = (lengths[pairs] for lengths in self._lengths)
        self.width = row_lengths(source, target, room)
        check_room(batch_size, max(self.width), "a packed row (model.hparams.pack_length)")
        self.num_rows = batch_size // max(self.width)
        self._order = np.random.RandomState([seed, 0]).permutation(pairs)
        source, target = (lengths[self._order] for lengths in self._lengths)
        self._starts = rows_of(source, target, self.width)
        self.epoch = 0

    def __len__(self) -> int:
        return -(-(len(self._starts) - 1) // (self.num_rows * self.shard.world_size))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator, because Lightning calls iter() during setup and nothing may be read before the first next().
        yield from prefetch(self._batches(self.epoch), self.shard.device)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        order = np.random.RandomState([self.seed, 1 + epoch]).permutation(len(self._starts) - 1)
        global_rows = self.num_rows * self.shard.world_size
        for first in range(self.first_step() * global_rows, len(order), global_rows):
            rows = order[first : first + global_rows]
            num_targets = int(sum(self._lengths[1][pairs].sum() for pairs in self._pairs(rows)))
            pairs_of_rows = self._pairs(rows[self.shard.rank :: self.shard.world_size])
            weight = self.shard.world_size / num_targets
            yield packed(self.corpus, pairs_of_rows, self.num_rows, self.width, weight, self.shard.device)

    def _pairs(self, rows: np.ndarray) -> list[np.ndarray]:
        return [self._order[self._starts[row] : self._starts[row + 1]] for row in rows]


def packed(
    corpus: Corpus, pairs: list[np.ndarray], num_rows: int, width: tuple[int, int], weight: float, device: torch.device
) -> Batch:
    """Return the tensors of `num_rows` rows: those with these pairs, then empty ones.

    - `source`, int64 [rows, S]: ids, an end mark after each sentence, padding
    - `inputs`, `labels`, int64 [rows, T]: the decoder's input and target, as in `loader.batch`
    - `weights`, float32 [rows, T]: `weight` for a real label, else 0
    - `source_place`, `target_place`, int64: place of each token in its sentence, from 0
    - `source_sentence`, `target_sentence`, int64: number of each token's sentence in its row, from 1; 0 for padding
    """
    flat = np.concatenate([*pairs, np.zeros(0, np.int64)])
    row = np.repeat(np.arange(len(pairs)), [len(group) for group in pairs])
    number = np.concatenate([*(np.arange(1, len(group) + 1) for group in pairs), np.zeros(0, np.int64)])
    source = _laid_out(corpus.source, corpus.source_start, flat, row, number, (num_rows, width[0]))
    target = _laid_out(corpus.target, corpus.target_start, flat, row, number, (num_rows, width[1]))
    labels, place, sentence = target
    before = np.roll(labels, 1, axis=1)  # Before a first token it has another sentence's, which BEGIN replaces.
    inputs = np.where(place == 0, np.where(sentence > 0, BEGIN, PAD), before)
    weights = (labels != PAD) * np.float32(weight)
    arrays = {
        "source": source[0], "inputs": inputs, "labels": labels, "weights": weights.astype(np.float32),
        "source_place": source[1], "source_sentence": source[2], "target_place": place, "target_sentence": sentence,
    }  # fmt: skip
    num_tokens = (int((source[0] != PAD).sum()), int((labels != PAD).sum()))
    return {**all_to_device(arrays, device), "num_samples": len(flat), "num_tokens": num_tokens}


def _laid_out(
    ids: np.ndarray, start: np.ndarray, pairs: np.ndarray, row: np.ndarray, number: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids, places and sentence numbers, int64 of `shape`; pair i is sentence number[i] of row[i]."""
    lengths = start[pairs + 1] - start[pairs] + 1
    before = lengths.cumsum() - lengths
    offset = before - np.repeat(before[number == 1], np.bincount(row)) if len(pairs) else before
    place = np.arange(int(lengths.sum())) - np.repeat(before, lengths)
    sources = (np.repeat(start[pairs], lengths) + place).clip(max=len(ids) - 1)
    tokens = np.where(place == np.repeat(lengths - 1, lengths), END, ids[sources])
    into = np.repeat(row * shape[1] + offset, lengths) + place
    laid = np.zeros((3, shape[0] * shape[1]), np.int64)
    laid[:, into] = tokens, place, np.repeat(number, lengths)
    return laid[0].reshape(shape), laid[1].reshape(shape), laid[2].reshape(shape)
