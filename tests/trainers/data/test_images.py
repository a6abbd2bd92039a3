"""In-memory image data: nothing is read early, every sample counts once, shapes never change."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from conf.schema import ConfigError
from tests.trainers.processes import ALONE, CPU
from trainers.data import digits as digits_module
from trainers.data.digits import digits, digits_file, read_digits
from trainers.data.images import ImageData, split
from trainers.data.loading.types import Shard


def numbered(num_train: int = 50, num_eval: int = 20, num_test: int = 10, reads: list | None = None) -> ImageData:
    """Data whose images carry their number in their first two pixels."""

    def read(source: str):
        if reads is not None:
            reads.append(source)
        count = num_test if source == "test" else num_train + num_eval
        images = np.zeros((count, 4, 4), np.uint8)
        images[:, 0, 0], images[:, 0, 1] = np.divmod(np.arange(count), 256)
        return images, np.arange(count) % 10

    names = tuple("0123456789")
    return ImageData("numbered", 10, (4, 4), names, num_train, num_eval, num_test, read)


def numbers(batch: dict) -> torch.Tensor:
    return batch["images"][:, 0, 0, 0].long() * 256 + batch["images"][:, 0, 0, 1]


sizes = given(num=st.integers(1, 700), batch_size=st.integers(1, 130), world_size=st.integers(1, 4))


@sizes
@settings(max_examples=60, deadline=None)
def test_every_training_sample_counts_exactly_once_an_epoch(num: int, batch_size: int, world_size: int) -> None:
    data = numbered(num, 5)
    kept, _ = split(num + 5, 5)
    loaders = [data.train_loader(batch_size, 1, Shard(rank, world_size, CPU)) for rank in range(world_size)]
    seen: list[int] = []
    for step, batches in enumerate(zip(*loaders, strict=True)):
        num_global = min(num - step * batch_size * world_size, batch_size * world_size)
        for batch in batches:
            assert batch["images"].shape == (batch_size, 1, 4, 4)
            assert (batch["images"].dtype, batch["labels"].dtype) == (torch.uint8, torch.int64)
            assert batch["weights"].dtype == torch.float32
            assert torch.equal(batch["labels"], numbers(batch) % 10)
            real = batch["weights"] > 0
            assert int(real.sum()) == batch["num_samples"]
            assert torch.allclose(batch["weights"][real], torch.tensor(world_size / num_global))
            seen += numbers(batch)[real].tolist()
        counts = [batch["num_samples"] for batch in batches]
        assert sum(counts) == num_global
        assert max(counts) - min(counts) <= 1
    assert sorted(seen) == kept.tolist()


@sizes
@settings(max_examples=60, deadline=None)
def test_every_held_out_sample_counts_exactly_once(num: int, batch_size: int, world_size: int) -> None:
    data = numbered(5, num, num)
    _, held_out = split(num + 5, num)
    for make, expected in ((data.eval_loader, held_out), (data.test_loader, np.arange(num))):
        loaders = [make(batch_size, Shard(rank, world_size, CPU)) for rank in range(world_size)]
        seen: list[int] = []
        for loader in loaders:
            batches = list(loader)
            assert len(batches) == len(loader) == len(loaders[0])
            for batch in batches:
                assert batch["images"].shape == (batch_size, 1, 4, 4)
                assert set(batch["weights"].tolist()) <= {0.0, 1.0}
                assert int(batch["weights"].sum()) == batch["num_samples"]
                seen += numbers(batch)[batch["weights"] > 0].tolist()
        assert seen == expected.tolist()


def test_a_process_without_a_real_sample_still_takes_part() -> None:
    loaders = [numbered(5, 2).eval_loader(4, Shard(rank, 4, CPU)) for rank in range(4)]
    assert [[batch["num_samples"] for batch in loader] for loader in loaders] == [[1], [1], [0], [0]]


def test_nothing_is_read_before_the_first_batch_and_the_test_set_only_when_asked_for() -> None:
    reads: list[str] = []
    data = numbered(reads=reads)
    data.example_batches(4, torch.device("cpu"))
    train, evaluation = data.train_loader(8, 1, ALONE), data.eval_loader(8, ALONE)
    test = data.test_loader(8, ALONE)
    assert (len(train), len(evaluation), len(test)) == (7, 3, 2)
    iterators = iter(train), iter(evaluation), iter(test)
    assert reads == []
    next(iterators[0])
    next(iterators[1])
    assert reads == ["train"]
    list(train)
    next(iterators[2])
    assert reads == ["train", "test"]


def test_no_test_set_no_loader() -> None:
    assert numbered(num_test=0).test_loader(8, ALONE) is None


def epoch_order(epoch: int, seed: int = 1, batch_size: int = 8, world_size: int = 1) -> list[int]:
    loaders = [
        numbered(num_train=48).train_loader(batch_size, seed, Shard(r, world_size, CPU)) for r in range(world_size)
    ]
    for loader in loaders:
        loader.sampler.set_epoch(epoch)  # Lightning does so.
    batches = [torch.cat([numbers(batch) for batch in step]).tolist() for step in zip(*loaders, strict=True)]
    return [sorted(batch) for batch in batches]


def test_the_order_is_decided_by_seed_and_epoch() -> None:
    assert epoch_order(3) == epoch_order(3)
    assert epoch_order(3) != epoch_order(4)
    assert epoch_order(3) != epoch_order(3, seed=2)


def test_global_batches_do_not_depend_on_the_number_of_processes() -> None:
    assert epoch_order(0, batch_size=8) == epoch_order(0, batch_size=4, world_size=2)
    assert epoch_order(0, batch_size=8) == epoch_order(0, batch_size=2, world_size=4)


def test_the_split_is_fixed_and_a_partition() -> None:
    kept, held_out = split(10, 2)
    assert held_out.tolist() == [2, 8]  # RandomState's stream is frozen: the same samples under every stack
    assert sorted([*kept, *held_out]) == list(range(10))


def test_an_example_batch_looks_like_a_real_one_and_leaves_the_random_state_alone() -> None:
    data = numbered()
    real = next(iter(data.train_loader(8, 1, ALONE)))
    state = torch.get_rng_state()
    (example,) = data.example_batches(8, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state)
    assert example.keys() == real.keys()
    for key in ("images", "labels", "weights"):
        assert (example[key].shape, example[key].dtype) == (real[key].shape, real[key].dtype)
    assert torch.equal(example["weights"], real["weights"])
    assert example["num_samples"] == real["num_samples"] == 8


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((7, 4, 4), np.uint8), np.zeros(7, int), r"has images uint8 \[7, 4, 4\].*expected uint8 \[8, 4, 4\]"),
        (np.zeros((8, 4, 5), np.uint8), np.zeros(8, int), r"\[8, 4, 5\]"),
        (np.zeros((8, 4, 4), np.float32), np.zeros(8, int), "float32"),
        (np.zeros((8, 4, 4), np.uint8), np.zeros(9, int), r"labels \[9\]"),
        (np.zeros((8, 4, 4), np.uint8), np.arange(8) + 3, "labels from 3 to 10, expected 0 to 9"),
        (np.zeros((8, 4, 4), np.uint8), np.arange(8) - 1, "labels from -1 to 6"),
    ],
)
def test_data_that_is_not_as_declared_is_refused(images: np.ndarray, labels: np.ndarray, message: str) -> None:
    data = ImageData("broken", 10, (4, 4), tuple("0123456789"), 6, 2, 0, lambda source: (images, labels))
    with pytest.raises(ConfigError, match=message):
        next(iter(data.train_loader(2, 1, ALONE)))


def test_digits_are_those_of_scikit_learn() -> None:
    images, labels = read_digits(digits_file())
    bunch = load_digits()
    assert np.array_equal(labels, bunch.target)
    assert np.array_equal(np.rint(images / 255 * 16), bunch.images)
    assert (images.min(), images.max()) == (0, 255)


def test_digits_parts_are_disjoint_and_complete() -> None:
    data = digits()
    parts = [data.samples(part, torch.device("cpu")) for part in ("train", "eval", "test")]
    assert [len(part.labels) for part in parts] == [1150, 288, 359]
    samples = np.concatenate([part.images.flatten(1).numpy() for part in parts])
    everything = read_digits(digits_file())[0].reshape(-1, 64)
    assert sorted(map(bytes, samples)) == sorted(map(bytes, everything))
    assert all(len(part.labels.unique()) == 10 for part in parts)


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="install scikit-learn"):
        digits()


def test_a_damaged_file_of_digits_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "digits.csv.gz"
    whole, flipped = digits_file().read_bytes(), bytearray(digits_file().read_bytes())
    flipped[20_000] ^= 255
    for content in (b"not gzip", whole[:-30], bytes(flipped)):
        broken.write_bytes(content)
        with pytest.raises(ConfigError, match=r"digits\.csv\.gz cannot be read"):
            read_digits(broken)


def test_a_torn_file_of_digits_is_refused_when_the_dataset_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, content = tmp_path / "digits.csv.gz", digits_file().read_bytes()
    monkeypatch.setattr(digits_module, "digits_file", lambda: path)
    for wrong, words in (
        (content[:-30], "cannot be read"),
        (gzip.compress(b"1,2\n"), r"holds a table \[2\], expected"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(ConfigError, match=words):
            digits()
    path.write_bytes(gzip.compress(gzip.decompress(content) + b"\n"))  # another file with the same numbers
    assert digits().num_train + digits().num_eval + digits().num_test == len(load_digits().images)
