"""Loads batches of sentences: assigns pairs to batches and processes, and lays out ids with marks and padding."""

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

    pairs: np.ndarray  # int64 [rows], positions in the corpus
    real: np.ndarray  # bool [rows], False for padding
    width: tuple[int, int]  # tokens of source and target
    num_targets: int  # real target tokens of the global batch


def check_room(
    batch_size: int,
    longest: int,
    what: str = "the longest sentence (model.hparams.max_length)",
    key: str = "batch_size",
) -> None:
    """Raise ConfigError if `what`, of `longest` tokens, does not fit into a batch; `key` is the option to name."""
    if batch_size < longest:
        raise ConfigError(
            f"{key}={batch_size}: is in tokens, and smaller than {what}, which has {longest:,}. Next: give"
            f" {key}={longest} or more"
        )


def training_cells(corpus: Corpus, pairs: np.ndarray, batch_size: int, most: int, world_size: int) -> list[Cell]:
    """Return up to `most` shapes of training batches, longest first; the same on all processes."""
    source, target = (lengths[pairs] for lengths in corpus.lengths())
    num_steps = int(np.maximum(source, target).sum()) // batch_size
    return cells(source, target, max(1, min(most, num_steps)), batch_size, world_size)


class TrainLoader(Positioned):
    """One process's share of the training pairs; over all processes each pair counts exactly once an epoch.

    The pairs of a batch belong to one cell. Every epoch, the pairs of each cell are permuted, in the same way on all
    processes, and split into global batches of one size, which are then shuffled. The last batch of a cell is padded
    with pairs of weight zero.
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
        # A generator, because Lightning calls iter() during setup and nothing may be read before the first next().
        steps = islice(self.steps(self.epoch), self.first_step(), None)
        batches = (batch(self.corpus, step, self.shard.device, self._weight(step)) for step in steps)
        yield from prefetch(batches, self.shard.device)

    def steps(self, epoch: int) -> Iterator[Step]:
        rng = np.random.RandomState([self.seed, epoch])  # RandomState's streams are frozen (NEP 19).
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

    Pairs are sorted by source length, so that batches have little padding, and all processes have the same number of
    steps with about equal work. Batches have `references`, a text for each row, or None for padding.
    """

    def __init__(
        self, corpus: Corpus, references: Sequence[str], batch_size: int, shard: Shard, key: str = "batch_size"
    ) -> None:
        """`key` is the option that sets `batch_size`, for error messages."""
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
        """Yield the first pair of each global batch, and the number of rows of a process."""
        first = 0
        while first < len(self._order):
            rows = max(1, self._batch_size // int(self._lengths[0][self._order[first]]))
            rows = min(rows, -(-(len(self._order) - first) // self.shard.world_size))
            yield first, rows
            first += rows * self.shard.world_size

    def __len__(self) -> int:
        return len(self._starts)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the order is the same in all epochs."""

    def __iter__(self) -> Iterator[Batch]:
        for first, rows in self._starts:
            pairs = self._order[first : first + rows * self.shard.world_size]
            width = (int(self._lengths[0][pairs].max()), int(self._lengths[1][pairs].max()))
            step = dealt(pairs, rows, self.shard, width, int(self._lengths[1][pairs].sum()))
            made = batch(self.corpus, step, self.shard.device, 1.0)
            places = zip(step.pairs.tolist(), step.real.tolist(), strict=True)
            yield {**made, "references": [self.references[pair] if real else None for pair, real in places]}


def dealt(pairs: np.ndarray, rows: int, shard: Shard, width: tuple[int, int], num_targets: int) -> Step:
    """Return this process's `rows` of a global batch of pairs. The last ones may be padding."""
    places = np.arange(rows) * shard.world_size + shard.rank
    return Step(np.resize(pairs, rows * shard.world_size)[places], places < len(pairs), width, num_targets)


def batch(corpus: Corpus, step: Step, device: torch.device, weight: float) -> Batch:
    """Return the tensors of a step.

    - `source`, int64 [rows, S]: ids, end mark, padding
    - `inputs`, int64 [rows, T]: the decoder's input: begin mark, ids, padding
    - `labels`, int64 [rows, T]: the decoder's target: ids, end mark, padding
    - `weights`, float32 [rows, T]: `weight` for a real label, else 0
    - `num_samples`: real pairs; `num_tokens`: their source and target tokens, including end marks
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
    """Return ids int64 [rows, width], each row with an end mark and padding, and lengths including that mark [rows]."""
    num = (start[pairs + 1] - start[pairs])[:, None]
    places = start[pairs][:, None] + np.arange(width)
    tokens = np.where(np.arange(width) < num, ids[places.clip(max=len(ids) - 1)], PAD).astype(np.int64)
    tokens[np.arange(width) == num] = END
    return tokens, num[:, 0] + 1
