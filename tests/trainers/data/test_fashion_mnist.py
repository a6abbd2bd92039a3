"""Fashion-MNIST's files: read as they are, refused by name where they are not what they should be."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from conf.schema import ConfigError
from tests.trainers.processes import ALONE
from trainers.data import fashion_mnist as module
from trainers.data.fashion_mnist import MD5, fashion_mnist, read_idx
from trainers.data.images import split

NUM_TRAIN, NUM_TEST = 50, 20  # in place of 60,000 and 10,000


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def files() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    arrays = {}
    for prefix, num in (("train", NUM_TRAIN), ("t10k", NUM_TEST)):
        arrays[f"{prefix}-images-idx3-ubyte"] = rng.integers(0, 256, (num, 28, 28), np.uint8)
        arrays[f"{prefix}-labels-idx1-ubyte"] = rng.integers(0, 10, num, np.uint8)
    return arrays


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "NUM_TRAIN", NUM_TRAIN)
    monkeypatch.setattr(module, "NUM_TEST", NUM_TEST)
    folder = tmp_path / "fashion_mnist"
    folder.mkdir()
    for name, array in files().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return folder


def first_batch(folder: Path) -> dict:
    return next(iter(fashion_mnist(str(folder)).train_loader(8, 1, ALONE)))


@pytest.mark.parametrize("packed", [True, False])
def test_reads_the_files(folder: Path, packed: bool) -> None:
    if not packed:
        for path in list(folder.glob("*.gz")):
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
    data = fashion_mnist(str(folder))
    assert (data.num_train, data.num_eval, data.num_test) == (40, 10, 20)
    arrays = files()
    kept, held_out = split(NUM_TRAIN, 10)
    for part, prefix, index in (("train", "train", kept), ("eval", "train", held_out), ("test", "t10k", slice(None))):
        samples = data.samples(part, torch.device("cpu"))
        assert np.array_equal(samples.images[:, 0].numpy(), arrays[f"{prefix}-images-idx3-ubyte"][index])
        assert np.array_equal(samples.labels.numpy(), arrays[f"{prefix}-labels-idx1-ubyte"][index])


def test_nothing_is_read_before_the_first_batch(folder: Path) -> None:
    data = fashion_mnist(str(folder))
    for path in folder.glob("*.gz"):
        path.write_bytes(b"")
    loader = data.train_loader(8, 1, ALONE)
    assert len(loader) == 5
    with pytest.raises(ConfigError, match="train-images-idx3-ubyte"):
        next(iter(loader))


def test_missing_files_are_named_with_what_to_do(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ConfigError) as caught:
        fashion_mnist(str(folder))
    message = str(caught.value)
    assert f"dataset.path={folder}" in message
    assert "lacks t10k-labels-idx1-ubyte.gz (" in message
    assert module.MIRROR in message
    assert "dataset.download=true" in message


def test_a_file_that_goes_away_is_named(folder: Path) -> None:
    data = fashion_mnist(str(folder))
    (folder / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte\.gz: cannot be read"):
        next(iter(data.train_loader(8, 1, ALONE)))


LABELS = np.zeros(NUM_TRAIN, np.uint8)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", idx(LABELS), "begins with 00000801, expected 00000803"),
        ("train-images-idx3-ubyte", b"<html>", "begins with 3c68746d, expected 00000803"),
        ("train-images-idx3-ubyte", b"", "begins with nothing"),
        ("train-images-idx3-ubyte", bytes((0, 0, 8, 3, 0, 0)), "ends after 6 bytes, inside its header"),
        ("train-images-idx3-ubyte", idx(np.zeros((50, 28, 27), np.uint8)), r"holds \[50, 28, 27\]"),
        ("train-images-idx3-ubyte", idx(np.zeros((50, 28, 28), np.uint8))[:-1], "holds 39215 bytes, expected 39216"),
        ("train-images-idx3-ubyte", idx(np.zeros((50, 28, 28), np.uint8)) + b"x", "holds 39217 bytes, expected 39216"),
        ("train-labels-idx1-ubyte", idx(LABELS[:-1]), r"holds \[49\] values \(count first\), expected \[50\]"),
        ("train-labels-idx1-ubyte", idx(LABELS + 10), "labels from 10 to 10, expected 0 to 9"),
    ],
)
def test_a_wrong_file_is_named_with_what_was_found(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    with pytest.raises(ConfigError, match=message) as caught:
        first_batch(folder)
    assert name in str(caught.value) or "train set" in str(caught.value)
    assert "original" in str(caught.value)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-20], lambda raw: b"no gzip" + raw, lambda raw: raw[:40]])
def test_a_damaged_archive_is_named(folder: Path, damage) -> None:
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte\.gz: is damaged or truncated"):
        first_batch(folder)


def test_a_pipe_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "images").symlink_to(os.devnull)  # A pipe would be waited for if it were read.
    with pytest.raises(ConfigError, match=r"images: cannot be read \(.*is not a regular file.*\. Next: replace the"):
        read_idx(tmp_path / "images", (1, 28, 28))


def test_a_read_array_is_writable(folder: Path) -> None:
    # torch.from_numpy warns about arrays that are not.
    assert read_idx(folder / "train-labels-idx1-ubyte.gz", (NUM_TRAIN,)).flags.writeable


def test_download_fetches_what_is_missing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIRROR", f"{folder.as_uri()}/")
    monkeypatch.setattr(
        module, "MD5", {name: hashlib.md5((folder / f"{name}.gz").read_bytes()).hexdigest() for name in MD5}
    )
    target = tmp_path / "new" / "folder"
    fashion_mnist(str(target), download=True)
    assert {path.name for path in target.iterdir()} == {".lock", *(f"{name}.gz" for name in MD5)}
    assert torch.equal(first_batch(target)["images"], first_batch(folder)["images"])


def test_a_download_that_differs_is_refused_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIRROR", f"{folder.as_uri()}/")
    target = tmp_path / "new"
    with pytest.raises(ConfigError, match=r"has MD5 .* expected 8d4fb7e6c68d591d4c3dfef9ec88bf0d"):
        fashion_mnist(str(target), download=True)
    assert [path.name for path in target.iterdir()] == [".lock"]


def test_a_mirror_out_of_reach_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIRROR", f"{(tmp_path / 'nowhere').as_uri()}/")
    with pytest.raises(ConfigError, match=r"dataset\.download=true: .*nowhere.* failed"):
        fashion_mnist(str(tmp_path / "new"), download=True)
