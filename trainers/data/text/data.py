"""Pairs of sentences as a dataset for translators."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from conf.schema import ConfigError
from trainers.data.loading.version import digest
from trainers.data.text.corpus import MOST_TOKENS, Corpus
from trainers.data.text.loader import EvalLoader, Step, TrainLoader, batch, training_cells
from trainers.data.text.packing import PackedLoader, packed, row_lengths
from trainers.data.text.vocabulary import NUM_MARKS, Vocabulary

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextView:
    """How a model wants sentences.

    Training pairs with a side of more than `max_length` tokens, including the end mark, are left out. `pack_length`
    packs several sentences into rows of so many tokens (trainers.data.text.packing). Without it, the sentences of a
    batch have similar lengths, and a batch has one of up to `num_shapes` shapes. Evaluation batches have room for
    `eval_batch_size` tokens; None means as many as in training.
    """

    max_length: int = MOST_TOKENS
    pack_length: int | None = None
    num_shapes: int = 64
    eval_batch_size: int | None = None


@dataclass(frozen=True)
class Held:
    """Pairs held out for evaluation, with their targets in plain text."""

    corpus: Corpus
    references: Sequence[str]


class TextData:
    """Implements Data, Viewable and InTokens of trainers.data.loading.types. Raises ConfigError if no pair is left.

    Batches are sized in tokens: a batch has room for `batch_size` tokens of each language.
    """

    view = TextView()

    def __init__(
        self, name: str, vocabulary: Vocabulary, train: Corpus, evaluation: Held | None, test: Held | None = None
    ) -> None:
        self.name, self.vocabulary, self.train, self.evaluation, self.test = name, vocabulary, train, evaluation, test
        self.num_tokens = vocabulary.size
        self._select()

    def viewed(self, view: TextView) -> TextData:
        data = copy(self)
        data.view = replace(view, max_length=min(view.max_length, MOST_TOKENS))
        data._select()
        return data

    def _select(self) -> None:
        source, target = self.train.lengths()
        self.pairs = np.flatnonzero(np.maximum(source, target) <= self.view.max_length)
        if not len(self.pairs):
            raise ConfigError(
                f"dataset={self.name}: no training pair has at most {self.view.max_length} tokens in both languages."
                " Next: give a larger model.hparams.max_length"
            )
        if left_out := len(self.train) - len(self.pairs):
            log.warning("dataset=%s: %d of %d training pairs have more than %d tokens in a language and are left out",
                        self.name, left_out, len(self.train), self.view.max_length)  # fmt: skip

    @property
    def num_train(self) -> int:
        return len(self.pairs)

    @property
    def num_eval(self) -> int:
        return len(self.evaluation.corpus) if self.evaluation else 0

    @property
    def num_train_tokens(self) -> int:
        """Return the tokens of all training pairs, counting the longer side of each."""
        source, target = self.train.lengths()
        return int(np.maximum(source, target)[self.pairs].sum())

    @property
    def longest(self) -> int:
        """Return the tokens of the longest sentence of any part."""
        corpora = [held.corpus for held in (self.evaluation, self.test) if held is not None]
        most = [int(max(lengths.max() for lengths in corpus.lengths())) for corpus in corpora]
        trained = int(max(lengths[self.pairs].max() for lengths in self.train.lengths()))
        return max([trained, self.view.pack_length or 0, *most])

    def mean_lengths(self) -> tuple[float, float, float, float, float]:
        """Return the means over training pairs, of S and T tokens, of S, T, S * S, S * T and T * T."""
        source, target = (lengths[self.pairs].astype(np.float64) for lengths in self.train.lengths())
        products = (source, target, source * source, source * target, target * target)
        means = [float(product.mean()) for product in products]
        return means[0], means[1], means[2], means[3], means[4]

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        """Return a full generated batch for each shape of this run; an evaluation translates a few tokens of it.

        The shapes and their numbers of sentences depend on the number of processes.
        """
        if self.view.pack_length:
            return [self._packed_example(self.view.pack_length, batch_size, device)]
        examples, world_size = [], dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        shapes = training_cells(self.train, self.pairs, batch_size, self.view.num_shapes, world_size)
        for number, cell in enumerate(shapes):
            rows = max(1, cell.num_rows(batch_size, world_size))
            corpus = generated(np.full(rows, cell.source), np.full(rows, cell.target), self.num_tokens, number)
            width = (cell.source, cell.target)
            step = Step(np.arange(rows), np.ones(rows, bool), width, rows * cell.target)
            example = batch(corpus, step, device, 1 / (rows * cell.target))
            examples.append({**example, "references": [None] * rows, "most_steps": 2})
        return examples

    def _packed_example(self, room: int, batch_size: int, device: torch.device) -> Batch:
        """Return a batch of rows with two sentences each."""
        source, target = (lengths[self.pairs] for lengths in self.train.lengths())
        width = row_lengths(source, target, room)
        rows = max(1, batch_size // max(width))
        halves = [np.tile([size // 2, size - size // 2], rows) for size in width]
        corpus = generated(halves[0], halves[1], self.num_tokens, 0)
        pairs = list(np.arange(2 * rows).reshape(rows, 2))
        example = packed(corpus, pairs, rows, width, 1 / (rows * width[1]), device)
        return {**example, "references": [None] * rows, "most_steps": 2}

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> TrainLoader | PackedLoader:
        if self.view.pack_length:
            return PackedLoader(self.train, self.pairs, self.view.pack_length, batch_size, seed, shard)
        return TrainLoader(self.train, self.pairs, batch_size, seed, shard, self.view.num_shapes)

    def eval_loader(self, batch_size: int, shard: Shard) -> EvalLoader | None:
        return self._held_loader(self.evaluation, batch_size, shard)

    def test_loader(self, batch_size: int, shard: Shard) -> EvalLoader | None:
        return self._held_loader(self.test, batch_size, shard)

    def _held_loader(self, held: Held | None, batch_size: int, shard: Shard) -> EvalLoader | None:
        if held is None:
            return None
        eval_size = self.view.eval_batch_size
        key = "batch_size" if eval_size is None else "model.hparams.eval_batch_size"
        return EvalLoader(held.corpus, held.references, eval_size or batch_size, shard, key)

    def version(self) -> str:
        """Return a digest of the ids that are trained and evaluated on, and of the references."""
        corpora = [self.train, *([self.evaluation.corpus] if self.evaluation else [])]
        parts: list[Any] = [array for corpus in corpora for array in vars(corpus).values()]
        return digest([*parts, list(self.evaluation.references) if self.evaluation else []])


def generated(source: np.ndarray, target: np.ndarray, num_tokens: int, seed: int) -> Corpus:
    """Return pairs of random ids, with lengths int64 [N] that include the end mark."""
    rng = np.random.RandomState(seed)  # a separate generator, so that warming up does not change the run's
    starts = [np.concatenate(([0], (lengths - 1).cumsum())).astype(np.int64) for lengths in (source, target)]
    ids = [rng.randint(NUM_MARKS, num_tokens, start[-1]).astype(np.int32) for start in starts]
    return Corpus(ids[0], starts[0], ids[1], starts[1])
