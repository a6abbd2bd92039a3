"""Image folders: the index, the crops, and loaders that read nothing early and count every sample once."""

from __future__ import annotations

import itertools
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conf.schema import ConfigError
from tests.trainers.jpegs import picture, write
from tests.trainers.processes import ALONE, CPU
from trainers.data.crop import ASPECT, NUM_DRAWS, SquareView, centre_crops, random_crops
from trainers.data.image_folder import ImageFolderData, imagenet
from trainers.data.jpeg import reader
from trainers.data.loading.types import Shard
from trainers.data.reading.folder_index import load_index
from trainers.data.synthetic_images import synthetic

COUNTS = {"train": {"ant": 4, "Bee": 1, "cat": 6}, "val": {"ant": 2, "cat": 3}}


def level(part: str, name: str, number: int) -> int:
    """The grey value that tells an image from all others; JPEG keeps it exactly."""
    names = [(p, n) for p, classes in COUNTS.items() for n in classes]
    return 10 + 30 * names.index((part, name)) + 4 * number


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    formats = {".JPEG": "JPEG", ".jpg": "JPEG", ".png": "PNG", ".Jpg": "JPEG", ".bmp": "BMP", ".GIF": "GIF"}
    endings = itertools.cycle(formats)
    for part, classes in COUNTS.items():
        for name, count in classes.items():
            for number, ending in zip(range(count), endings, strict=False):
                image = np.full((12 + number, 20, 3), level(part, name, number), np.uint8)
                write(root / part / name / f"{number}{ending}", image, format=formats[ending])
    (root / "train" / "ant" / "._0.jpg").write_text("not an image, but what another system left")
    (root / "train" / "ant" / "list.txt").write_text("no image either")
    (root / "train" / ".cache").mkdir()
    return root


def small(folder: Path) -> ImageFolderData:
    return imagenet(str(folder), num_threads=1).viewed(SquareView(4, 6))


def levels(batch: dict, real: bool = True) -> list[int]:
    images = batch["images"][: batch["num_samples"]] if real else batch["images"]
    assert (images == images[:, :1, :1, :1]).all()  # the images are of one colour
    return images[:, 0, 0, 0].tolist()


def expected(part: str) -> dict[int, int]:
    """Label by grey value."""
    names = sorted(COUNTS["train"])
    return {
        level(part, name, number): names.index(name) for name, count in COUNTS[part].items() for number in range(count)
    }


def test_the_index_numbers_the_classes_by_name(folder: Path) -> None:
    train, val = load_index(str(folder))
    assert train.class_names == val.class_names == ("Bee", "ant", "cat")
    assert train.labels.tolist() == [0] + [1] * 4 + [2] * 6
    assert val.labels.tolist() == [1] * 2 + [2] * 3
    names = [Path(path).relative_to(folder).parts for path in train.paths(np.array([0, 1, 10]))]
    assert [name[:2] for name in names] == [("train", "Bee"), ("train", "ant"), ("train", "cat")]


@pytest.mark.parametrize(("batch_size", "world_size"), [(1, 1), (4, 1), (16, 1), (2, 2), (3, 3)])
def test_every_training_image_counts_exactly_once_an_epoch(folder: Path, batch_size: int, world_size: int) -> None:
    data = small(folder)
    loaders = [data.train_loader(batch_size, 1, Shard(rank, world_size, CPU)) for rank in range(world_size)]
    seen: list[int] = []
    labels = expected("train")
    for step, batches in enumerate(zip(*loaders, strict=True)):
        num_global = min(11 - step * batch_size * world_size, batch_size * world_size)
        for batch in batches:
            assert batch["images"].shape == (batch_size, 3, 4, 4)
            assert batch["images"].dtype == torch.uint8
            assert batch["images"].is_contiguous(memory_format=torch.channels_last)
            assert batch["labels"].tolist() == [labels[value] for value in levels(batch, real=False)]
            weight = [world_size / num_global] * batch["num_samples"]
            assert batch["weights"].tolist() == pytest.approx(weight + [0.0] * (batch_size - batch["num_samples"]))
            seen += levels(batch)
    assert sorted(seen) == sorted(labels)


@pytest.mark.parametrize(("batch_size", "world_size"), [(1, 1), (4, 1), (2, 2), (3, 4)])
def test_every_validation_image_counts_exactly_once(folder: Path, batch_size: int, world_size: int) -> None:
    data = small(folder)
    labels, seen, lengths = expected("val"), [], set()
    for rank in range(world_size):
        loader = data.eval_loader(batch_size, Shard(rank, world_size, CPU))
        batches = list(loader)
        lengths |= {len(batches), len(loader)}
        for batch in batches:
            assert batch["images"].shape == (batch_size, 3, 4, 4)
            assert batch["weights"].tolist() == [1.0] * batch["num_samples"] + [0.0] * (
                batch_size - batch["num_samples"]
            )
            assert batch["labels"].tolist() == [labels[value] for value in levels(batch, real=False)]
            seen += levels(batch)
    assert len(lengths) == 1  # collectives run in step
    assert sorted(seen) == sorted(labels)
    assert data.test_loader(batch_size, ALONE) is None


def test_nothing_is_read_before_the_first_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    decode = reader.decode_files
    monkeypatch.setattr(
        reader, "decode_files", lambda paths, *_, **__: read.extend(map(str, paths)) or decode(paths, 1)
    )
    data = small(folder)
    data.example_batches(4, CPU)
    loaders = data.train_loader(4, 1, ALONE), data.eval_loader(4, ALONE)
    assert [len(loader) for loader in loaders] == [3, 2]
    iterators = [iter(loader) for loader in loaders]
    assert read == []
    for part, iterator in zip(("train", "val"), iterators, strict=True):
        read.clear()
        next(iterator)
        iterator.close()  # type: ignore[attr-defined]
        assert {Path(path).relative_to(folder).parts[0] for path in read} == {part}
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> ImageFolderData:
    """Eight images without two equal crops."""
    root = tmp_path_factory.mktemp("pictures")
    for number in range(8):
        write(root / "train" / "a" / f"{number}.jpg", picture(40, 60, number))
    write(root / "val" / "a" / "0.jpg", picture(60, 40))
    return imagenet(str(root), num_threads=1).viewed(SquareView(8, 10))


def epoch_images(data: ImageFolderData, epoch: int, seed: int = 1, batch_size: int = 4, world_size: int = 1) -> list:
    loaders = [data.train_loader(batch_size, seed, Shard(rank, world_size, CPU)) for rank in range(world_size)]
    for loader in loaders:
        loader.sampler.set_epoch(epoch)  # Lightning does so.
    steps = zip(*loaders, strict=True)
    # Processes take turns in a global batch.
    return [torch.stack([batch["images"] for batch in step], dim=1).flatten(0, 1).tolist() for step in steps]


def test_order_and_crops_are_decided_by_seed_and_epoch_alone(pictures: ImageFolderData) -> None:
    first = epoch_images(pictures, 0)
    assert epoch_images(pictures, 0) == first
    assert epoch_images(pictures, 0, batch_size=2, world_size=2) == first
    others = [*epoch_images(pictures, 1), *epoch_images(pictures, 0, seed=2)]
    assert all(image not in itertools.chain(*others) for image in itertools.chain(*first))


def test_an_evaluated_image_is_its_middle(pictures: ImageFolderData) -> None:
    (batch,) = pictures.eval_loader(1, ALONE)
    # 60 x 40 pixels: the shorter side becomes 10, and its middle 8 are shown. A shown pixel is the mean of 4 x 4.
    middle = picture(60, 40)[14:46, 4:36].reshape(8, 4, 8, 4, 3).mean(axis=(1, 3))
    image = batch["images"][0].permute(1, 2, 0).numpy()
    assert np.abs(image - middle).mean() < 2


def test_an_example_batch_looks_like_a_real_one_and_leaves_the_random_states_alone(folder: Path) -> None:
    data = small(folder)
    (real, *_) = data.train_loader(4, 1, ALONE)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()
    (example,) = data.example_batches(4, CPU)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    assert example.keys() == real.keys()
    for key in ("images", "labels", "weights"):
        assert (example[key].shape, example[key].dtype) == (real[key].shape, real[key].dtype)
        assert example[key].stride() == real[key].stride()
    assert torch.equal(example["weights"], real["weights"])
    assert example["num_samples"] == real["num_samples"] == 4


def test_a_broken_file_is_named(folder: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(folder, tmp_path / "copy"))
    broken = root / "train" / "Bee" / next((root / "train" / "Bee").iterdir()).name
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(ConfigError, match=rf"dataset\.path.*{broken.name} cannot be decoded"):
        list(small(root).train_loader(4, 1, ALONE))


def remove_contents(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()


def linked_to_itself(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to(path.name)


BAD = {
    "no folder": (lambda root: shutil.rmtree(root), r"is not a folder. .*train/<class>"),
    "no train": (lambda root: shutil.rmtree(root / "train"), r"lacks train. .*train/<class>"),
    "neither": (
        lambda root: [shutil.rmtree(root / part) for part in ("train", "val")],
        r"lacks train and val. .*train/<class>",
    ),
    "no class": (
        lambda root: [shutil.rmtree(root / "train" / name) for name in COUNTS["train"]],
        r"train has no class",
    ),
    "loose images": (
        lambda root: write(root / "val" / "ILSVRC2012_val_00000001.JPEG", picture(8, 8)),
        r"val has images outside of class folders \(ILSVRC2012_val_00000001\.JPEG.*1 in all\)",
    ),
    "empty class": (lambda root: remove_contents(root / "train" / "Bee"), r"train/Bee has no image"),
    "empty class in val": (lambda root: remove_contents(root / "val" / "cat"), r"val/cat has no image"),
    "class that links to itself": (lambda root: (root / "train" / "eel").symlink_to("eel"), r"train/eel: .*links"),
    "class that links to its folder": (
        lambda root: (root / "train" / "eel").symlink_to("."),
        r"train/eel has no image",
    ),
    "part that links to itself": (lambda root: linked_to_itself(root / "val"), r"lacks val"),
    "root that links to itself": (lambda root: linked_to_itself(root), r"no such folder|is not a folder"),
    "an image of another kind": (
        lambda root: (root / "train" / "ant" / "3.TIF").write_bytes(b"II*"),
        r"train/ant has images of formats that are not read \(3\.TIF and so on, 1 in all\). Next: convert them to",
    ),
    "images of a class in a folder": (
        lambda root: write(root / "train" / "ant" / "more" / "0.jpg", picture(8, 8)),
        r"train/ant has images in a subfolder \(more\)",
    ),
    "class of val only": (
        lambda root: write(root / "val" / "dog" / "0.jpg", picture(8, 8)),
        r"val/dog is a class without a folder in .*train",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_folder_that_is_not_as_it_should_be_is_refused(folder: Path, tmp_path: Path, what: str) -> None:
    change, message = BAD[what]
    root = Path(shutil.copytree(folder, tmp_path / "copy"))
    change(root)
    with pytest.raises(ConfigError, match=rf"dataset\.path=.*{message}"):
        imagenet(str(root))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900)), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_random_crops_lie_within_the_image_and_have_an_allowed_shape(sizes: list, seed: int) -> None:
    extents = np.array(sizes)
    crops, flips = random_crops(np.random.RandomState(seed).random_sample((len(sizes), NUM_DRAWS)), extents)
    assert (crops.dtype, flips.dtype, crops.shape) == (np.float32, np.bool_, (len(sizes), 4))
    width, height = (crops[:, 2:] - crops[:, :2]).T
    assert (crops >= -1e-3).all()
    assert (crops[:, 2:] <= extents[:, ::-1] * (1 + 1e-6)).all()
    assert (width / height > ASPECT[0] * (1 - 1e-3)).all()
    assert (width / height < ASPECT[1] * (1 + 1e-3)).all()


def test_random_crops_spread_over_areas_shapes_places_and_flips() -> None:
    num = 20_000
    crops, flips = random_crops(np.random.RandomState(0).random_sample((num, NUM_DRAWS)), np.tile([300, 300], (num, 1)))
    width, height = (crops[:, 2:] - crops[:, :2]).T.astype(float)
    area, aspect = width * height / 300**2, np.log(width / height)
    assert (area.min(), area.max()) == (pytest.approx(0.08, abs=1e-3), pytest.approx(1.0, abs=1e-2))
    # Large ones of a long shape do not fit and are drawn again, so the mean is a little below 0.54; of those up to
    # (3/4), which always fit, the mean is exact.
    assert area[area < 0.75].mean() == pytest.approx((0.08 + 0.75) / 2, abs=0.005)
    assert abs(aspect.mean()) < 0.005
    assert aspect[area < 0.75].std() == pytest.approx(np.log(16 / 9) / np.sqrt(12), abs=0.002)
    room = 300 - width
    assert (crops[:, 0] / room)[room > 1].mean() == pytest.approx(0.5, abs=0.01)
    assert flips.mean() == pytest.approx(0.5, abs=0.015)
    large, _ = random_crops(
        np.random.RandomState(0).random_sample((num, NUM_DRAWS)), np.tile([300, 300], (num, 1)), 0.5
    )
    assert (large[:, 2:] - large[:, :2]).prod(axis=1).min() == pytest.approx(0.5 * 300**2, rel=1e-3)


def test_where_no_crop_fits_it_is_the_middle() -> None:
    crops, _ = random_crops(np.full((2, NUM_DRAWS), 0.999), np.array([[10, 1000], [1000, 10]]))
    assert crops[0] == pytest.approx([500 - 20 / 3, 0, 500 + 20 / 3, 10])
    assert crops[1] == pytest.approx([0, 500 - 20 / 3, 10, 500 + 20 / 3])


def test_a_centre_crop_is_cut_from_the_middle_of_the_resized_image() -> None:
    crops = centre_crops(np.array([[256, 512], [512, 256]]), 256, 224)
    assert crops.tolist() == [[144, 16, 368, 240], [16, 144, 240, 368]]


def test_synthetic_batches_count_an_epoch_over_processes_and_are_not_evaluated() -> None:
    data = synthetic(10).viewed(SquareView(8))
    assert data.eval_loader(4, ALONE) is None
    assert data.test_loader(4, ALONE) is None
    loaders = [data.train_loader(2, 1, Shard(rank, 2, CPU)) for rank in range(2)]
    steps = list(zip(*loaders, strict=True))
    assert [len(loader) for loader in loaders] == [len(steps)] * 2 == [3, 3]
    assert [[batch["num_samples"] for batch in step] for step in steps] == [[2, 2], [2, 2], [1, 1]]
    assert steps[2][0]["weights"].tolist() == [1.0, 0.0]
    (example,) = data.example_batches(2, CPU)
    for batch in itertools.chain(*steps):
        for key in ("images", "labels", "weights"):
            assert (batch[key].shape, batch[key].dtype) == (example[key].shape, example[key].dtype)
            assert batch[key].stride() == example[key].stride()
    images = [batch["images"] for batch in itertools.chain(*steps)]
    assert not any(torch.equal(image, other) for image, other in itertools.combinations(images, 2))
    assert max(int(batch["labels"].max()) for batch in synthetic(64, 3).train_loader(32, 1, ALONE)) == 2
    for option in ("size", "num_classes"):
        with pytest.raises(ConfigError, match=rf"dataset\.{option}=0: must be 1 or more"):
            synthetic(**{option: 0})
