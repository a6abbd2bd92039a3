"""Batches of sentences: each pair counts once on any number of processes, little is padding, none of it counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from conf.schema import ConfigError
from tests.trainers.data.text.files import corpus, random_corpus
from tests.trainers.processes import ALONE, CPU
from trainers.data.loading.types import Shard
from trainers.data.text import BEGIN, END, PAD, TextView
from trainers.data.text.data import Held, TextData
from trainers.data.text.loader import TrainLoader
from trainers.data.text.shapes import cell_of, cells
from trainers.data.text.synthetic import lengths, synthetic
from trainers.data.text.vocabulary import Numbered

VIEWS = [TextView(64), TextView(64, pack_length=64)]


def data(num: int = 500, view: TextView = VIEWS[0]) -> TextData:
    held = random_corpus(37, seed=1)
    return TextData("text", Numbered(40), random_corpus(num), Held(held, [str(number) for number in range(37)])).viewed(
        view
    )


def sentences(ids: torch.Tensor, numbers: torch.Tensor) -> list[tuple[int, ...]]:
    """The sentences of rows in order, without padding."""
    return [
        tuple(row[of == number].tolist())
        for row, of in zip(ids, numbers, strict=True)
        for number in range(1, int(of.max()) + 1)
    ]


def pairs_of(batch: dict[str, Any]) -> list[tuple[tuple[int, ...], ...]]:
    """Source, decoder's inputs and labels of each real pair of a batch."""
    packed = "source_sentence" in batch
    source = batch["source_sentence"] if packed else (batch["source"] != PAD).long()
    target = batch["target_sentence"] if packed else (batch["labels"] != PAD).long()
    real = (batch["weights"] > 0).any(dim=1)
    parts = [(batch["source"], source), (batch["inputs"], target), (batch["labels"], target)]
    columns = [sentences(ids[real], numbers[real]) for ids, numbers in parts]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("view", VIEWS, ids=["bucketed", "packed"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_every_pair_counts_once_an_epoch_and_a_global_batch_weighs_one(view: TextView, world_size: int) -> None:
    text = data(view=view)
    loaders = [text.train_loader(128, 5, Shard(rank, world_size, CPU)) for rank in range(world_size)]
    epochs = []
    for epoch in (0, 1):
        seen, order = Counter[Any](), []
        for loader in loaders:
            loader.set_epoch(epoch)
        steps = list(zip(*loaders, strict=True))
        assert len(steps) == len(loaders[0])
        for batches in steps:
            assert sum(float(batch["weights"].sum()) for batch in batches) == pytest.approx(world_size)
            for batch in batches:
                pairs = pairs_of(batch)
                assert len(pairs) == batch["num_samples"]
                counts = [sum(len(pair[side]) for pair in pairs) for side in (0, 2)]
                assert tuple(counts) == batch["num_tokens"]
                seen.update(pairs)
                order += pairs
        epochs.append((seen, order))
    source, target = text.train.source.tolist(), text.train.target.tolist()
    expected = Counter(
        ((*source[a:b], END), (BEGIN, *target[c:d]), (*target[c:d], END))
        for a, b, c, d in zip(
            text.train.source_start[:-1], text.train.source_start[1:], text.train.target_start[:-1],
            text.train.target_start[1:], strict=True,
        )
    )  # fmt: skip
    assert epochs[0][0] == epochs[1][0] == expected
    assert epochs[0][1] != epochs[1][1]


@pytest.mark.parametrize("view", VIEWS, ids=["bucketed", "packed"])
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_example_batches_have_the_shapes_of_real_ones_and_move_no_random_number(
    view: TextView, world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of several processes, which share the sentences of a shape: each would record its graphs on the clock."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: world_size)
    text, before = data(2000, view), torch.get_rng_state()
    state = np.random.get_state()[1].tolist()  # type: ignore[union-attr,index]
    examples = text.example_batches(256, CPU)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == state  # type: ignore[union-attr,index]
    shapes = [
        {key: value.shape for key, value in batch.items() if isinstance(value, torch.Tensor)} for batch in examples
    ]
    for batch in text.train_loader(256, 1, Shard(0, world_size, CPU)):
        assert {key: value.shape for key, value in batch.items() if isinstance(value, torch.Tensor)} in shapes
    assert all(float(batch["weights"].sum()) == pytest.approx(1) for batch in examples)


def test_a_view_says_how_many_shapes_there_are_at_most() -> None:
    assert len(data(2000, TextView(64)).example_batches(256, CPU)) > 3
    few = data(2000, TextView(64, num_shapes=3))
    assert len(few.example_batches(256, CPU)) == 3
    assert len({batch["source"].shape[1] for batch in few.train_loader(256, 1, ALONE)}) <= 3


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_an_evaluation_has_every_sentence_once_with_its_reference(world_size: int) -> None:
    text = data()
    loaders = [text.eval_loader(96, Shard(rank, world_size, CPU)) for rank in range(world_size)]
    assert len({len(loader) for loader in loaders if loader}) == 1
    seen = [
        (reference, tuple(row[row != PAD].tolist()))
        for loader in loaders
        if loader
        for batch in loader
        for reference, row in zip(batch["references"], batch["source"], strict=True)
        if reference is not None
    ]
    assert text.evaluation
    held = text.evaluation.corpus
    bounds = zip(held.source_start[:-1], held.source_start[1:], strict=True)
    assert sorted(seen) == sorted((str(n), (*held.source[a:b].tolist(), END)) for n, (a, b) in enumerate(bounds))


def test_an_evaluation_can_have_larger_batches_than_training() -> None:
    text = data()

    def num_batches(size: int | None) -> int:
        return len(text.viewed(TextView(64, eval_batch_size=size)).eval_loader(96, ALONE) or ())

    assert num_batches(None) == num_batches(96) > 2
    assert num_batches(9600) == 1


def test_a_batch_smaller_than_the_longest_sentence_is_refused() -> None:
    longest = corpus([[5] * 20, [5]], [[5], [5]])
    text = TextData("text", Numbered(40), longest, Held(longest, ["a", "b"]))
    with pytest.raises(
        ConfigError, match=r"batch_size=20: is in tokens, and smaller than the longest sentence .* 21\. Next"
    ):
        text.train_loader(20, 1, ALONE)
    with pytest.raises(ConfigError, match=r"batch_size=20: .* longest sentence .* 21. Next: give batch_size=21"):
        text.eval_loader(20, ALONE)
    with pytest.raises(ConfigError, match=r"^model.hparams.eval_batch_size=20: .* give model.hparams"):
        text.viewed(TextView(64, eval_batch_size=20)).eval_loader(64, ALONE)
    with pytest.raises(
        ConfigError, match=r"batch_size=63: .* smaller than a packed row .* 64. Next: give batch_size=64"
    ):
        text.viewed(VIEWS[1]).train_loader(63, 1, ALONE)
    short = text.viewed(TextView(10))
    assert short.pairs.tolist() == [1]
    assert len(short.train_loader(20, 1, ALONE)) == 1
    assert text.longest == 21


def test_little_of_a_batch_is_padding_with_the_lengths_of_wmt() -> None:
    source, target = lengths(50_000)
    assert 27 < target.mean() < 29.5
    among = cells(source, target, 64, 13824)
    places = cell_of(source, target, among)
    widths = np.array([(cell.source, cell.target) for cell in among])[places]
    assert (source <= widths[:, 0]).all()
    assert (target <= widths[:, 1]).all()
    assert (source + target).sum() > 0.9 * widths.sum()
    packed = synthetic(20_000).viewed(TextView(256, pack_length=256)).train_loader(13824, 1, ALONE)
    room = len(packed) * sum(packed.width) * packed.num_rows  # type: ignore[union-attr]
    assert (sum(lengths(20_000)[0]) + sum(lengths(20_000)[1])) > 0.85 * room


@pytest.mark.parametrize("batch_size", [8192, 98304])
def test_little_is_padding_or_fills_a_batch_up_also_where_batches_are_few(batch_size: int) -> None:
    text = synthetic(200_000).viewed(TextView(50))
    real, shares = sum(int(lengths[text.pairs].sum()) for lengths in text.train.lengths()), []
    for world_size in (1, 2, 8):
        loader = text.train_loader(batch_size, 1, Shard(0, world_size, CPU))
        assert isinstance(loader, TrainLoader)
        steps = list(loader.steps(0))
        shares.append(real / (world_size * sum(len(step.pairs) * sum(step.width) for step in steps)))
    assert shares[0] > 0.92
    assert min(shares) > shares[0] - 0.006


def test_generated_text_has_no_evaluation_and_no_size_below_one() -> None:
    text = synthetic(10)
    assert text.eval_loader(1024, ALONE) is None
    assert text.test_loader(1024, ALONE) is None
    with pytest.raises(ConfigError, match=r"dataset.size=0: must be 1 or more"):
        synthetic(0)
