"""Batches of sentences: which pairs are in each, on which process, and their ids with marks and padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from conf.schema import ConfigError
from trainers.data.loading.position import Positioned
from trainers.data.loading.prefetch import all_to_device, prefetch
from trainers.data.text.corpus import Corpus
from trainers.data.text.shapes import Cell, cell_of, cells
from trainers.data.text.vocabulary import BEGIN, END, PAD

if TYPE_CHECKING:
    import torch

    from trainers.data.loading.types import Batch, Shard


@dataclass(frozen=True)
class Step:
    """One process's part of a global batch."""

    pairs: np.ndarray  # int64 [rows], places in the corpus
    real: np.ndarray  # bool [rows], false for what only fills up the batch
    width: tuple[int, int]  # tokens of source and target
    num_targets: int  # the global batch's real target tokens


def check_room(
    batch_size: int,
    longest: int,
    what: str = "the longest sentence (model.hparams.max_length)",
    key: str = "batch_size",
) -> None:
    """Raises ConfigError for a batch, of `key`, that a sentence or what else has so many tokens does not fit into."""
    if batch_size < longest:
        raise ConfigError(
            f"{key}={batch_size}: is in tokens, and smaller than {what}, which has {longest:,}; give"
            f" {key}={longest} at least"
        )


def training_cells(corpus: Corpus, pairs: np.ndarray, batch_size: int, most: int, world_size: int) -> list[Cell]:
    """Up to `most` shapes of the training batches, longest first; the same on every process."""
    source, target = (lengths[pairs] for lengths in corpus.lengths())
    num_steps = int(np.maximum(source, target).sum()) // batch_size
    return cells(source, target, max(1, min(most, num_steps)), batch_size, world_size)


class TrainLoader(Positioned):
    """One process's share of the training pairs, each of which counts exactly once an epoch over all processes.

    Batches are of one cell. One permutation an epoch, the same on every process, is dealt out cell by cell into global
    batches, which are then shuffled. A cell's are of one size; its last is filled up with pairs of weight zero.
    """

    def __init__(
        self, corpus: Corpus, pairs: np.ndarray, batch_size: int, seed: int, shard: Shard, most_shapes: int
    ) -> None:
        self.corpus, self.seed, self.shard = corpus, seed, shard
        self._lengths = corpus.lengths()
        source, target = (lengths[pairs] for lengths in self._lengths)
        check_room(batch_size, int(max(source.max(), target.max())))
        self._cells = training_cells(corpus, pairs, batch_size, most_shapes, shard.world_size)
        places = cell_of(source, target, self._cells)
        self._groups = [pairs[places == number] for number in range(len(self._cells))]
        self._rows = [cell.num_rows(batch_size, shard.world_size) for cell in self._cells]
        self.epoch = 0

    def __len__(self) -> int:
        return sum(
            -(-len(group) // (rows * self.shard.world_size))
            for group, rows in zip(self._groups, self._rows, strict=True)
        )

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        # A generator: Lightning calls iter() while it sets up, and nothing may be read before the first next().
        steps = islice(self.steps(self.epoch), self.first_step(), None)
        batches = (batch(self.corpus, step, self.shard.device, self._weight(step)) for step in steps)
        yield from prefetch(batches, self.shard.device)

    def steps(self, epoch: int) -> Iterator[Step]:
        rng = np.random.RandomState([self.seed, epoch])  # its streams are frozen (NEP 19)
        orders = [rng.permutation(group) for group in self._groups]
        starts = [
            (number, first)
            for number, (group, rows) in enumerate(zip(self._groups, self._rows, strict=True))
            for first in range(0, len(group), rows * self.shard.world_size)
        ]
        for place in rng.permutation(len(starts)):
            number, first = starts[place]
            cell, rows = self._cells[number], self._rows[number]
            pairs = orders[number][first : first + rows * self.shard.world_size]
            yield dealt(pairs, rows, self.shard, (cell.source, cell.target), int(self._lengths[1][pairs].sum()))

    def _weight(self, step: Step) -> float:
        return self.shard.world_size / step.num_targets


class EvalLoader:
    """One process's share of a fixed part of the data; over all processes each pair counts exactly once.

    Pairs are sorted by the length of their source, so that little of a batch is padding, and every process has the same
    number of steps of about the same work. Batches have `references`, a text a row, or None for what fills up.
    """

    def __init__(
        self, corpus: Corpus, references: Sequence[str], batch_size: int, shard: Shard, key: str = "batch_size"
    ) -> None:
        """`key` is the setting that `batch_size` is from, for an error."""
        self.corpus, self.references, self.shard = corpus, references, shard
        self._lengths = corpus.lengths()
        self._batch_size = batch_size
        check_room(
            batch_size,
            int(max(lengths.max() for lengths in self._lengths)),
            "the longest sentence that is evaluated",
            key,
        )
        self._order = np.argsort(-self._lengths[0], kind="stable")
        self._starts = list(self._cut())

    def _cut(self) -> Iterator[tuple[int, int]]:
        """The first pair of each global batch, and the rows that a process has there."""
        first = 0
        while first < len(self._order):
            rows = max(1, self._batch_size // int(self._lengths[0][self._order[first]]))
            rows = min(rows, -(-(len(self._order) - first) // self.shard.world_size))
            yield first, rows
            first += rows * self.shard.world_size

    def __len__(self) -> int:
        return len(self._starts)

    def set_epoch(self, epoch: int) -> None:
        """The order is always the same."""

    def __iter__(self) -> Iterator[Batch]:
        for first, rows in self._starts:
            pairs = self._order[first : first + rows * self.shard.world_size]
            width = (int(self._lengths[0][pairs].max()), int(self._lengths[1][pairs].max()))
            step = dealt(pairs, rows, self.shard, width, int(self._lengths[1][pairs].sum()))
            made = batch(self.corpus, step, self.shard.device, 1.0)
            places = zip(step.pairs.tolist(), step.real.tolist(), strict=True)
            yield {**made, "references": [self.references[pair] if real else None for pair, real in places]}


def dealt(pairs: np.ndarray, rows: int, shard: Shard, width: tuple[int, int], num_targets: int) -> Step:
    """This process's part of a global batch of pairs, of which it has `rows`, the last of them perhaps filler."""
    own = np.arange(rows) * shard.world_size + shard.rank
    return Step(np.resize(pairs, rows * shard.world_size)[own], own < len(pairs), width, num_targets)


def batch(corpus: Corpus, step: Step, device: torch.device, weight: float) -> Batch:
    """The tensors of a step.

    - `source`, int64 [rows, S]: ids, the mark of the end, padding
    - `inputs`, int64 [rows, T]: what the decoder is given, the mark of the beginning, ids, padding
    - `labels`, int64 [rows, T]: what it is to say, ids, the mark of the end, padding
    - `weights`, float32 [rows, T]: `weight` for a real label, else 0
    - `num_samples`: real pairs; `num_tokens`: their source and target tokens, marks of the end included
    """
    source, source_lengths = _padded(corpus.source, corpus.source_start, step.pairs, step.width[0])
    labels, target_lengths = _padded(corpus.target, corpus.target_start, step.pairs, step.width[1])
    inputs = np.full_like(labels, BEGIN)
    inputs[:, 1:] = np.where(labels[:, :-1] == END, PAD, labels[:, :-1])
    weights = ((labels != PAD) & step.real[:, None]) * np.float32(weight)
    arrays = {"source": source, "inputs": inputs, "labels": labels, "weights": weights.astype(np.float32)}
    num_tokens = (int(source_lengths[step.real].sum()), int(target_lengths[step.real].sum()))
    return {**all_to_device(arrays, device), "num_samples": int(step.real.sum()), "num_tokens": num_tokens}


def _padded(ids: np.ndarray, start: np.ndarray, pairs: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids int64 [rows, width] with the mark of the end behind them and padding, and lengths with that mark [rows]."""
    num = (start[pairs + 1] - start[pairs])[:, None]
    places = start[pairs][:, None] + np.arange(width)
    tokens = np.where(np.arange(width) < num, ids[places.clip(max=len(ids) - 1)], PAD).astype(np.int64)
    tokens[np.arange(width) == num] = END
    return tokens, num[:, 0] + 1
