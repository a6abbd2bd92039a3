"""Batches of sequences: a step's are the same for any number of processes, and a run goes on at the token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from conf.dataset_options import DatasetConfig
from conf.schema import ConfigError, ModelConfig, RunConfig
from tests.trainers.processes import ALONE, CPU
from trainers.data.language import IGNORED, LanguageData, synthetic
from trainers.data.language.loader import Rows
from trainers.data.loading.types import InTokens, Shard, Versioned
from trainers.loop.batch_size import checked_train_samples, num_eval_samples

LENGTH = 4


class Counted:
    """Sequence n of an epoch e is 100 n + 10,000 e and what follows."""

    def __init__(self, num_sequences: int) -> None:
        self.num_sequences = num_sequences
        self.asked: list[int] = []

    def rows(self, seed: int, epoch: int, device: torch.device) -> Rows:
        def take(places: np.ndarray) -> torch.Tensor:
            self.asked += places.tolist()
            return torch.from_numpy(places[:, None] * 100 + epoch * 10_000 + np.arange(LENGTH + 1)).int()

        return take


def counted(num_train: int = 27, num_eval: int = 11) -> LanguageData:
    return LanguageData("counted", 10**6, LENGTH, Counted(num_train), Counted(num_eval), lambda: "")


def steps(data: LanguageData, batch_size: int, world_size: int, epoch: int = 0, behind: int = 0) -> list[Any]:
    """The batches of all processes by step."""
    of_ranks = []
    for rank in range(world_size):
        loader = data.train_loader(batch_size, 1, Shard(rank, world_size, CPU))
        loader.set_epoch(epoch)
        loader.begin_behind(behind)
        of_ranks.append(list(loader))
        assert len(loader) == behind + len(of_ranks[-1])
    return list(zip(*of_ranks, strict=True))


def sequences(batches: Any) -> list[int]:
    return [int(first) // 100 for batch in batches for first in batch["inputs"][:, 0]]


def test_a_batch_has_the_token_behind_each_as_its_target() -> None:
    (batch,) = steps(counted(), 8, 1)[0]
    assert batch["inputs"].tolist() == [[0, 1, 2, 3], [100, 101, 102, 103]]
    assert batch["targets"].tolist() == [[1, 2, 3, 4], [101, 102, 103, 104]]
    assert (batch["inputs"].dtype, batch["targets"].dtype) == (torch.int32, torch.int64)
    assert (batch["num_samples"], batch["num_tokens"]) == (8, (8,))


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_step_has_the_same_sequences_on_any_number_of_processes(world_size: int, accumulated: int) -> None:
    data, of_all = counted(), 8
    batches = steps(data, of_all // world_size // accumulated * LENGTH, world_size)
    joined = [
        sorted(sequences([batch for group in batches[first : first + accumulated] for batch in group]))
        for first in range(0, len(batches) // accumulated * accumulated, accumulated)
    ]
    assert joined == [list(range(first, first + of_all)) for first in (0, 8, 16)]


def test_an_epoch_leaves_out_what_fills_no_global_batch() -> None:
    assert [sequences(group) for group in steps(counted(num_train=7), 2 * LENGTH, 2)] == [[0, 1, 2, 3]]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_run_goes_on_at_the_token_where_it_stopped_and_makes_nothing_of_before(world_size: int) -> None:
    data, batch_size = counted(), 2 * LENGTH
    whole = steps(data, batch_size, world_size, epoch=3)
    part = counted()
    resumed = steps(part, batch_size, world_size, epoch=3, behind=2)
    assert len(resumed) == len(whole) - 2
    for left, right in zip(whole[2:], resumed, strict=True):
        for mine, other in zip(left, right, strict=True):
            assert torch.equal(mine["inputs"], other["inputs"])
            assert torch.equal(mine["targets"], other["targets"])
    assert isinstance(part.train, Counted)
    assert min(part.train.asked) == 2 * 2 * world_size


def test_the_epoch_after_that_is_whole() -> None:
    loader = counted().train_loader(2 * LENGTH, 1, ALONE)
    loader.begin_behind(12)
    assert [len(list(loader)), len(list(loader))] == [1, 13]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_sequence_is_evaluated_once_over_all_processes(world_size: int) -> None:
    data, seen, num = counted(num_eval=11), [], []
    for rank in range(world_size):
        loader = data.eval_loader(2 * LENGTH, Shard(rank, world_size, CPU))
        assert loader is not None
        batches = list(loader)
        num.append(len(batches))
        assert len(loader) == len(batches)
        for batch in batches:
            real = (batch["targets"] != IGNORED).all(dim=1)
            assert ((batch["targets"] == IGNORED).all(dim=1) | real).all()
            assert batch["num_samples"] == LENGTH * int(real.sum())
            assert batch["num_tokens"] == (LENGTH * int(real.sum()),)
            seen += [int(first) // 100 for first in batch["inputs"][real][:, 0]]
    assert sorted(seen) == list(range(11))
    assert len({*num}) == 1  # All processes have as many steps.


def test_it_says_what_it_has_in_tokens() -> None:
    data = counted()
    assert isinstance(data, InTokens)
    assert isinstance(data, Versioned)
    assert (data.train_tokens, data.validation_tokens, data.longest) == (27 * LENGTH, 11 * LENGTH, LENGTH)
    config = RunConfig(model=ModelConfig("m", "w", 8 * LENGTH), dataset=DatasetConfig("counted"), gpus=0)
    assert checked_train_samples(data, config, ALONE) == 24 * LENGTH  # The epoch leaves out three sequences.
    assert num_eval_samples(data, ALONE) == 11 * LENGTH
    assert num_eval_samples(replace(data, validation=None), ALONE) == 0


def test_a_batch_larger_than_an_epoch_is_refused() -> None:
    config = RunConfig(model=ModelConfig("m", "w", 28 * LENGTH), dataset=DatasetConfig("counted"), gpus=0)
    with pytest.raises(ConfigError, match=r"batch_size=112 .*in tokens.*dataset=counted, which has 108"):
        checked_train_samples(counted(), config, ALONE)


def test_a_batch_that_is_no_whole_number_of_sequences_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch_size=10: is in tokens, .* such as 8$"):
        counted().train_loader(10, 1, ALONE)
    with pytest.raises(ConfigError, match=r"batch_size=3: .* such as 4$"):
        counted().eval_loader(3, ALONE)


def test_an_example_has_the_shape_and_the_types_of_a_batch_and_leaves_the_random_numbers_alone() -> None:
    data, before = counted(), torch.random.get_rng_state()
    (example,) = data.example_batches(2 * LENGTH, CPU)
    (batch,) = steps(data, 2 * LENGTH, 1)[0]
    for key in ("inputs", "targets"):
        assert example[key].shape == batch[key].shape
        assert example[key].dtype == batch[key].dtype
    assert torch.equal(torch.random.get_rng_state(), before)


def test_generated_batches_have_a_few_in_turns() -> None:
    data = synthetic(size=20, vocabulary=7, sequence_length=LENGTH)
    batches = [batch["inputs"] for (batch,) in steps(data, 2 * LENGTH, 1)]
    assert len(batches) == 10
    assert torch.equal(batches[0], batches[4])
    assert not torch.equal(batches[0], batches[1])
    assert int(torch.cat(batches).max()) == 6
    assert data.eval_loader(LENGTH, ALONE) is None
