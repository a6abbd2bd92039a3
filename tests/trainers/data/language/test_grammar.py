"""The generated language: its entropy is what it says, and each sequence follows from its place alone."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from conf.schema import ConfigError
from tests.trainers import triton_on_cpu
from tests.trainers.processes import ALONE, CPU
from trainers.data.language import LanguageData, grammar
from trainers.data.language.grammar import Grammar, mixed
from trainers.data.loading.types import Shard
from trainers.ops.chance.counters import key_of, random_bits


def conditional_entropy(rows: np.ndarray, order: int) -> tuple[float, Counter[tuple[int, ...]]]:
    """Nats a token given the `order` tokens before it, as counted, and how often each context was there."""
    pairs: Counter[tuple[int, ...]] = Counter()
    for row in rows.tolist():
        pairs.update(tuple(row[place : place + order + 1]) for place in range(len(row) - order))
    contexts: Counter[tuple[int, ...]] = Counter()
    for pair, number in pairs.items():
        contexts[pair[:-1]] += number
    total = sum(pairs.values())
    return -sum(n / total * math.log(n / contexts[pair[:-1]]) for pair, n in pairs.items()), contexts


@pytest.mark.parametrize(("vocabulary", "order", "branches"), [(12, 1, 4), (9, 2, 3), (6, 3, 2), (7, 2, 7)])
def test_the_entropy_of_a_long_sample_is_the_exact_one(vocabulary: int, order: int, branches: int) -> None:
    language = Grammar(vocabulary, order, branches)
    rows = language.sequences(np.arange(200), 500, key_of(5))
    assert rows.min() == 0
    assert rows.max() == vocabulary - 1
    entropy, contexts = conditional_entropy(rows, order)
    # Counts of K contexts with B successors fall short of the entropy by K (B - 1) / 2 N (G. Miller 1955).
    bias = len(contexts) * (branches - 1) / (2 * rows.size)
    assert language.entropy == math.log(branches)
    assert entropy + bias == pytest.approx(language.entropy, abs=2e-3)


def test_fewer_tokens_do_not_tell_all() -> None:
    rows = Grammar(9, 2, 3).sequences(np.arange(200), 500, key_of(5))
    assert conditional_entropy(rows, 1)[0] > math.log(3) + 0.05


def test_every_context_has_as_many_successors_one_in_each_range() -> None:
    language = Grammar(40, 2, 4)
    followers: dict[tuple[int, int], set[int]] = {}
    for row in language.sequences(np.arange(300), 300, key_of(7)).tolist():
        for first, second, third in zip(row, row[1:], row[2:], strict=False):
            followers.setdefault((first, second), set()).add(third)
    ranges = [range(*pair) for pair in pairwise(language.bounds.tolist())]
    for after in followers.values():
        assert all(len(after & {*tokens}) <= 1 for tokens in ranges)
    assert sum(len(after) == 4 for after in followers.values()) > 100
    of_last: dict[int, set[int]] = {}  # The first range follows from the last token alone, the second from two.
    for (_, second), after in followers.items():
        of_last.setdefault(second, set()).update(after)
    assert all(len(after & {*ranges[0]}) == 1 for after in of_last.values())
    assert any(len(after & {*ranges[1]}) > 1 for after in of_last.values())


def test_the_draws_are_those_of_counters() -> None:
    counters = torch.arange(5, 50)
    assert mixed(counters.numpy().astype(np.uint64), 2**64 - 3).astype(np.int64).tolist() == (
        random_bits(counters, -3).tolist()
    )


def test_a_sequence_follows_from_its_place_alone_and_its_beginning_from_the_stream() -> None:
    language = Grammar(100, 3, 6)
    whole = language.sequences(np.arange(50), 20, key_of(1))
    assert np.array_equal(language.sequences(np.array([7, 49, 3]), 20, key_of(1)), whole[[7, 49, 3]])
    assert not np.array_equal(language.sequences(np.arange(50), 20, key_of(2)), whole)


def test_what_is_generated_stays_the_same() -> None:
    assert Grammar(100, 2, 6).sequences(np.array([0, 10**9]), 8, key_of(1)).tolist() == [
        [34, 33, 0, 9, 6, 20, 2, 1],
        [32, 7, 1, 2, 74, 0, 3, 46],
    ]


@pytest.mark.exhaustive
@pytest.mark.slow  # in a process that interprets Triton
def test_the_kernel_of_a_gpu_makes_the_same_sequences() -> None:
    language, places, num_tokens, key = triton_on_cpu.language()
    expected = language.sequences(places.numpy(), num_tokens, key)
    assert triton_on_cpu.results()["language"].numpy().tolist() == expected.tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_has_the_same_batches() -> None:
    data = small(vocabulary=50_257, order=3, sequence_length=128, train_tokens=64 * 128, validation_tokens=128)
    gpu = Shard(0, 1, torch.device("cuda", 0))
    ours = list(data.train_loader(16 * 128, 1, ALONE))
    for mine, other in zip(ours, data.train_loader(16 * 128, 1, gpu), strict=True):
        assert torch.equal(mine["inputs"], other["inputs"].cpu())
        assert torch.equal(mine["targets"], other["targets"].cpu())


def small(**options: int) -> LanguageData:
    return grammar(
        **{"vocabulary": 50, "order": 2, "branches": 5, "train_tokens": 640, "validation_tokens": 80,
           "sequence_length": 8} | options
    )  # fmt: skip


def ids(data: LanguageData, seed: int = 1, epoch: int = 0) -> list[list[int]]:
    loader = data.train_loader(64, seed, ALONE)
    loader.set_epoch(epoch)
    return [row for batch in loader for row in batch["inputs"].tolist()]


def test_training_has_other_text_in_each_epoch_and_of_each_seed_and_evaluation_always_the_same() -> None:
    data = small()
    texts = [ids(data), ids(data, epoch=1), ids(data, seed=2)]
    assert ids(data) == texts[0]
    assert len({tuple(map(tuple, text)) for text in texts}) == 3
    evaluated = [[batch["inputs"].tolist() for batch in data.eval_loader(40, ALONE)] for _ in range(2)]  # type: ignore[union-attr]
    assert evaluated[0] == evaluated[1]
    assert not {tuple(row) for batch in evaluated[0] for row in batch} & {tuple(row) for row in texts[0]}


def test_it_says_its_sizes_its_floor_and_what_it_holds() -> None:
    data = small()
    assert (data.vocabulary, data.train_tokens, data.validation_tokens) == (50, 640, 80)
    assert data.entropy == math.log(5)
    assert data.bytes_per_token is None
    versions = {small(**option).version() for option in ({}, {"order": 1}, {"train_tokens": 648}, {"branches": 4})}
    assert len(versions) == 4
    assert small().version() == data.version()
    by_default = grammar()
    assert (by_default.vocabulary, by_default.sequence_length) == (50_257, 1024)
    assert by_default.train_tokens == 3_250 * 524_288


def test_an_example_is_made_as_the_batches_are() -> None:
    data = small()
    (example,) = data.example_batches(64, CPU)
    assert example["inputs"].shape == (8, 8)
    assert not {tuple(row) for row in example["inputs"].tolist()} & {tuple(row) for row in ids(data)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 0}, r"dataset\.order=0: must be 1 or more"),
        ({"order": 9}, r"dataset\.order=9: must be 1 to 8"),
        ({"branches": 1}, r"dataset\.branches=1: must be 2 to dataset\.vocabulary=50"),
        ({"branches": 51}, r"dataset\.branches=51"),
        ({"sequence_length": 0}, r"dataset\.sequence_length=0"),
        ({"vocabulary": 2**31}, r"dataset\.vocabulary=2147483648: must be up to 2,147,483,647"),
        ({"train_tokens": 7}, r"dataset\.train_tokens=7: is less than a sequence"),
        ({"validation_tokens": 7}, r"dataset\.validation_tokens=7: is less than a sequence"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_language_is_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        small(**options)
