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
from tests.support.commands import events, launch
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


def made(folder: Path, refused: bool) -> dict:
    """The first batch. A file is to be refused when the dataset is made, if it is so by its header or its length."""
    data = fashion_mnist(str(folder))
    assert not refused
    return next(iter(data.train_loader(8, 1, ALONE)))


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
    packed = folder / f"{name}.gz"
    packed.write_bytes(gzip.compress(content))
    with pytest.raises(ConfigError, match=message) as caught:
        made(folder, refused="labels from" not in message)
    packed.unlink()
    (folder / name).write_bytes(content)  # The same unpacked.
    with pytest.raises(ConfigError, match=message):
        made(folder, refused="labels from" not in message)
    assert name in str(caught.value) or "train set" in str(caught.value)
    assert "original" in str(caught.value)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-20], lambda raw: b"no gzip" + raw, lambda raw: raw[:40]])
def test_a_damaged_archive_is_named(folder: Path, damage) -> None:
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte\.gz: is damaged or truncated"):
        fashion_mnist(str(folder))


def test_an_archive_with_zeros_behind_it_is_read(folder: Path) -> None:
    """As GNU gzip does. Its last bytes are not its length."""
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes() + bytes(512))
    assert first_batch(folder)["num_samples"] == 8


@pytest.mark.slow
def test_a_torn_file_is_refused_before_the_clock(tmp_path: Path) -> None:
    for prefix, num in (("train", module.NUM_TRAIN), ("t10k", module.NUM_TEST)):
        for kind, shape in (("images-idx3", (num, 28, 28)), ("labels-idx1", (num,))):
            content = gzip.compress(idx(np.zeros(shape, np.uint8)), 1)
            torn = content[:-100] if (prefix, kind) == ("t10k", "images-idx3") else content  # the last one to be read
            (tmp_path / f"{prefix}-{kind}-ubyte.gz").write_bytes(torn)
    run = launch(tmp_path, "gpus=0", "dataset=fashion_mnist", f"dataset.path={tmp_path}", "tracking.offline=true")
    assert run.code == 2, run.output
    message = run.result["failure"]["message"]
    assert f"{tmp_path}/t10k-images-idx3-ubyte.gz: is damaged or truncated" in message
    assert "Next: replace the file by the original" in message
    assert not events(run.folder, "run_start")


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
