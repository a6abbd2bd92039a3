"""An epoch's batches of ratings: each positive once, no negative among the positives, the same for any world size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from conf.schema import ConfigError
from tests.support.composing import composed
from tests.trainers.processes import ALONE, CPU
from trainers.data.loading.types import Shard
from trainers.data.ratings.data import RatingsData
from trainers.data.ratings.draws import rated_items
from trainers.data.ratings.interactions import Interactions, leave_last_out
from trainers.data.ratings.loader import GROUP, NUM_CANDIDATES, NUM_NEGATIVES
from trainers.data.ratings.synthetic import SyntheticRatings
from trainers.loop.batch_size import checked_train_samples
from trainers.ops.chance.counters import key_of, random_bits, shuffled

USERS, ITEMS = 13, 60


def small(num_users: int = USERS, num_items: int = ITEMS) -> RatingsData:
    """Users who rated from two items to all but one."""
    rng = np.random.RandomState(3)
    counts = np.linspace(2, num_items, num_users).astype(int)
    users = np.repeat(np.arange(num_users), counts)
    items = np.concatenate([rng.permutation(num_items)[:count] for count in counts])
    return RatingsData("small", Interactions(**leave_last_out(users, items, rng.rand(len(users)), num_items)))


def rated(data: RatingsData) -> list[set[int]]:
    held = data.interactions
    return [set(held.items[held.start[user] : held.start[user + 1]].tolist()) for user in range(data.num_users)]


def real(batch: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    kept = batch["weights"] > 0
    assert batch["num_samples"] == GROUP * int(kept.sum())
    return batch["users"][kept].numpy(), batch["items"][kept].numpy()


def epoch(
    data: RatingsData, batch_size: int, epoch: int = 0, seed: int = 1, world_size: int = 1
) -> list[list[tuple[int, ...]]]:
    """The groups of all processes by step, as sorted tuples of the user and the items."""
    steps: list[list[tuple[int, ...]]] = []
    for rank in range(world_size):
        loader = data.train_loader(batch_size, seed, Shard(rank, world_size, CPU))
        loader.set_epoch(epoch)
        for step, batch in enumerate(loader):
            if rank == 0:
                steps.append([])
            steps[step] += [
                (user, *items) for user, items in zip(*(part.tolist() for part in real(batch)), strict=True)
            ]
        assert len(loader) == len(steps)
    return [sorted(groups) for groups in steps]


def whole(epoch: list[list[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    return [group for groups in epoch for group in groups]


@pytest.mark.parametrize("batch_size", [5, 35, 400])
def test_every_positive_comes_once_with_negatives_that_its_user_did_not_rate(batch_size: int) -> None:
    data, positives = small(), set()
    own = rated(data)
    for user, positive, *negatives in whole(epoch(data, batch_size)):
        assert len(negatives) == NUM_NEGATIVES
        assert not own[user] & set(negatives)
        assert 0 <= min(negatives) <= max(negatives) < ITEMS
        assert (user, positive) not in positives
        positives.add((user, positive))
    assert positives == {(user, item) for user, items in enumerate(own) for item in items}


def test_weights_make_the_loss_a_mean_over_the_global_batch() -> None:
    data = small()
    num = data.interactions.num_train
    for rank in range(2):
        *full, last = data.train_loader(50, 1, Shard(rank, 2, CPU))
        assert torch.allclose(full[0]["weights"], torch.full((10,), 1 / 10))
        left = num - 20 * len(full)
        assert last["weights"][last["weights"] > 0].unique().tolist() == pytest.approx([2 / left])


def test_a_global_batch_is_the_same_on_two_processes() -> None:
    data = small()
    assert epoch(data, 100) == epoch(data, 50, world_size=2) == epoch(data, 25, world_size=4)


def test_each_epoch_and_seed_has_an_order_and_negatives_of_its_own() -> None:
    data = small()
    first = epoch(data, 100)
    assert epoch(data, 100) == first
    others = (epoch(data, 100, epoch=1), epoch(data, 100, seed=2))
    for other in others:
        assert [group[:2] for group in whole(other)] != [group[:2] for group in whole(first)]
        assert sorted(whole(other)) != sorted(whole(first))  # the negatives, in whatever order
    assert others[0] != others[1]


def test_every_item_that_was_not_rated_is_equally_likely() -> None:
    start, items = torch.tensor([0, 3, 5]), torch.tensor([0, 2, 3, 5, 6], dtype=torch.int32)
    table = rated_items(7, start, items)
    num = 40_000
    drawn = table.unrated(torch.tensor([0, 1]).repeat(num, 1), random_bits(torch.arange(2 * num).view(num, 2), 9))
    for user, unrated in enumerate(([1, 4, 5, 6], [0, 1, 2, 3, 4])):
        counts = drawn[:, user].bincount(minlength=7)
        assert counts.nonzero().flatten().tolist() == unrated
        expected = num / len(unrated)
        assert float(((counts[unrated] - expected) ** 2 / expected).sum()) < 25  # chi-square: less than 1 in 10,000


def test_random_bits_are_those_of_splitmix() -> None:
    """Against its published form in whole numbers, which has no sign and loses nothing."""
    key, mask = key_of(1, 2, 3), 2**64 - 1

    def splitmix(counter: int) -> int:
        word = (counter * 0x9E3779B97F4A7C15 + key) & mask
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        return word ^ (word >> 31)

    counters = [0, 1, 2, 12345, 2**40]
    assert [bits % 2**64 for bits in random_bits(torch.tensor(counters), key).tolist()] == [*map(splitmix, counters)]
    assert len({key_of(), key_of(0), key_of(0, 0), key_of(0, 1), key_of(1, 0)}) == 5


def test_an_order_holds_every_place_once_and_is_none_that_one_sees() -> None:
    order = shuffled(1000, key_of(5), CPU)
    assert sorted(order.tolist()) == list(range(1000))
    assert abs(float(torch.corrcoef(torch.stack((order, torch.arange(1000))).float())[0, 1])) < 0.15


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_user_is_evaluated_once_among_the_same_candidates(world_size: int) -> None:
    data, seen = small(num_items=1500), {}
    own = rated(data)
    for rank in range(world_size):
        for batch in data.eval_loader(2 * NUM_CANDIDATES, Shard(rank, world_size, CPU)):
            assert batch["num_samples"] == int(batch["eval_weights"].sum())
            for row in torch.nonzero(batch["eval_weights"]).flatten():
                user = int(batch["eval_users"][row])
                assert user not in seen
                seen[user] = batch["candidates"][row].tolist(), int(batch["positions"][row])
    assert sorted(seen) == list(range(USERS))
    for user, (items, position) in seen.items():
        kept = [item for item in items if item >= 0]
        assert len(items) == NUM_CANDIDATES
        assert len(kept) == len(set(kept))
        assert not own[user] & set(kept)
        assert items[position] == data.interactions.held_out[user]
    assert sum(min(items) < 0 for items, _ in seen.values()) > 0  # some were drawn twice
    (again,) = (batch for batch in data.eval_loader(USERS * NUM_CANDIDATES, ALONE))
    assert {user: (items, position) for user, items, position in rows_of(again)} == seen


def rows_of(batch: dict[str, Any]) -> list[tuple[int, list[int], int]]:
    columns = (batch[name].tolist() for name in ("eval_users", "candidates", "positions"))
    return list(zip(*columns, strict=True))


def test_evaluations_of_a_run_are_all_the_same() -> None:
    loader = small().eval_loader(3 * NUM_CANDIDATES, ALONE)
    first, second = ([rows_of(batch) for batch in loader] for _ in range(2))
    assert first == second


def test_a_batch_that_would_part_a_positive_from_its_negatives_is_refused() -> None:
    for data in (small(), SyntheticRatings()):
        with pytest.raises(ConfigError, match=r"batch_size=1024: .*a multiple of 5, such as batch_size=1020"):
            data.train_loader(1024, 1, ALONE)
    with pytest.raises(ConfigError, match=r"batch_size=3: .*batch_size=5"):
        small().train_loader(3, 1, ALONE)
    with pytest.raises(ConfigError, match=r"dataset\.size=12: .*multiple of 5"):
        SyntheticRatings(12)


def test_samples_are_counted_in_groups_and_a_batch_of_more_is_refused() -> None:
    data = small()
    num = GROUP * data.interactions.num_train

    def checked(batch_size: int, num_processes: int = 1) -> int:
        config = composed(["model=ncf", "gpus=0", f"batch_size={batch_size}", f"cpu_processes={num_processes}"])
        return checked_train_samples(data, config, Shard(0, num_processes, CPU))

    assert checked(num) == checked(GROUP) == num
    with pytest.raises(ConfigError, match=rf"has {num:,} samples. Next: give up to batch_size={num}$"):
        checked(num + GROUP)
    half = num // 2 // GROUP * GROUP
    with pytest.raises(ConfigError, match=rf"on each of 2 devices: .*give up to batch_size={half}$"):
        checked(half + GROUP, 2)
    with pytest.raises(ConfigError, match=rf"train on up to {num // GROUP} devices$"):
        checked(GROUP, num)


def test_generated_batches_look_like_real_ones() -> None:
    data = small()
    (example,) = data.example_batches(35, CPU)
    (synthetic,) = SyntheticRatings(35).train_loader(35, 1, ALONE)
    real_ones = next(iter(data.train_loader(35, 1, ALONE))) | next(iter(data.eval_loader(35, ALONE)))

    def layout(batch: dict[str, Any]) -> dict[str, Any]:
        return {key: (value.shape, value.dtype) for key, value in batch.items() if key != "num_samples"}

    assert layout(example) == layout(real_ones) == layout(synthetic)
    assert example["num_samples"] == synthetic["num_samples"] == 35
    assert float(example["weights"].sum()) == pytest.approx(1)
    assert int(example["users"].max()) < USERS
    assert int(example["items"].max()) < ITEMS
    (least,) = data.example_batches(2, CPU)  # what the memory of a sample is estimated from
    assert least["num_samples"] == GROUP


@pytest.mark.parametrize(("size", "batch_size", "samples"), [(100, 30, [30, 30, 30, 10]), (20, 20, [20])])
def test_synthetic_samples_are_counted(size: int, batch_size: int, samples: list[int]) -> None:
    loader = SyntheticRatings(size).train_loader(batch_size, 1, ALONE)
    assert [batch["num_samples"] for batch in loader] == samples
    assert len(loader) == len(samples)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_kernel_draws_the_same_groups() -> None:
    from tests.trainers import neumf, triton_on_cpu

    by_kernel = triton_on_cpu.results("tests.trainers.neumf")
    for name, expected in neumf.drawn(kernels=False).items():
        assert torch.equal(by_kernel[name], expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_makes_the_same_batches_without_waiting() -> None:
    from tests.trainers import synchronization

    data, device = small(num_items=1500), torch.device("cuda", 0)
    shard = Shard(0, 1, device)
    loaders = data.train_loader(100, 1, shard), data.eval_loader(3000, shard)
    own = data.train_loader(100, 1, ALONE), data.eval_loader(3000, ALONE)
    for on_gpu, on_cpu in zip(loaders, own, strict=True):
        list(on_gpu)
        with synchronization.refused():
            batches = list(on_gpu)
        for batch, expected in zip(batches, on_cpu, strict=True):
            for key, value in expected.items():
                assert torch.equal(batch[key].cpu(), value) if key != "num_samples" else batch[key] == value
