"""A loader that begins behind some batches of an epoch serves the others exactly, and the next epochs whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.trainers.data.test_rating_batches import small
from tests.trainers.loop import test_epochs
from tests.trainers.processes import CPU
from trainers.data.loading.position import Positioned
from trainers.data.loading.types import Shard
from trainers.data.ratings.synthetic import SyntheticRatings
from trainers.data.text.data import TextView
from trainers.data.text.synthetic import synthetic

# By kind: how its data are made in a folder, and the size of a batch.
KINDS: dict[str, tuple[Callable[[Path], Any], int]] = {
    **{kind: (make, 2 if kind != "in memory" else 200) for kind, make in test_epochs.KINDS.items()},
    "sentences": (lambda root: synthetic(300), 600),
    "sentences in packed rows": (lambda root: synthetic(300).viewed(TextView(pack_length=256)), 600),
    "ratings": (lambda root: small(), 20),
    "generated ratings": (lambda root: SyntheticRatings(200), 20),
}


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMETRIAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], list[Any]]]:
    """The loaders of one kind, one for each process."""
    data: dict[str, Any] = {}
    loaders: dict[tuple[str, int], list[Any]] = {}

    def of(kind: str, world_size: int) -> list[Any]:
        make, batch_size = KINDS[kind]
        if kind not in data:
            data[kind] = make(tmp_path_factory.mktemp("data"))
        if (kind, world_size) not in loaders:
            shards = [Shard(rank, world_size, CPU) for rank in range(world_size)]
            loaders[kind, world_size] = [data[kind].train_loader(batch_size, 5, shard) for shard in shards]
        return loaders[kind, world_size]

    yield of
    loaders.clear()


def same(batch: dict[str, Any], other: dict[str, Any]) -> bool:
    return batch.keys() == other.keys() and all(
        torch.equal(torch.as_tensor(value), torch.as_tensor(other[name])) for name, value in batch.items()
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([1, 2]), st.integers(0, 3), st.floats(0, 1), st.integers(1, 3))
@example(2, 1, 0.5, 1)
@example(1, 0, 1.0, 1)
def test_what_is_left_of_an_epoch_is_what_was_not_trained(
    made: Callable[[str, int], list[Any]], kind: str, world_size: int, epoch: int, part: float, ahead: int
) -> None:
    """An iteration is given up after some batches, with others made ahead of it; a new one goes on behind those."""
    for loader in made(kind, world_size):
        assert isinstance(loader, Positioned)
        loader.set_epoch(epoch)
        whole = list(loader)
        trained = round(part * (len(whole) - 1))
        interrupted = iter(loader)
        before = list(itertools.islice(interrupted, trained))
        del interrupted
        loader.set_epoch(epoch)
        loader.begin_behind(trained)
        rest = list(loader)
        assert len(before) + len(rest) == len(whole) == len(loader)
        assert all(map(same, [*before, *rest], whole)), "each batch once, in its place"
        loader.set_epoch(epoch)
        assert len(list(loader)) == len(whole), "the next epoch is whole"


def test_an_iterator_that_was_made_before_goes_on_there_too(made: Callable[[str, int], list[Any]]) -> None:
    """Lightning asks for one while it sets up, before it is known how far the training was."""
    (loader,) = made("in memory", 1)
    whole = list(loader)
    batches = iter(loader)
    loader.begin_behind(3)
    assert all(map(same, batches, whole[3:]))
