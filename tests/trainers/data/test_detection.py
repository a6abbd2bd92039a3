"""Detection batches: every image counts once, nothing is read early, and files that do not fit are refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conf.schema import ConfigError
from tests.trainers.detection_folders import (
    CROWD,
    GREY_STEP,
    LABELS,
    LYING,
    SOME,
    STANDING,
    Picture,
    Thing,
    describe,
    draw,
    small,
)
from tests.trainers.processes import ALONE, CPU
from trainers.data.detection.view import Cut, ShortEdge
from trainers.data.loading.types import Shard

pytestmark = pytest.mark.usefixtures("own_cache")

TRAIN = [
    Picture(LYING),
    Picture(LYING, [CROWD]),
    Picture(LYING, SOME),
    Picture(STANDING, SOME),
    Picture(LYING, SOME[1:]),
    Picture(LYING, [CROWD, *(Thing((x, 2, x + 5, 9)) for x in range(8))]),
    Picture(LYING, SOME),
    Picture(STANDING, SOME),
    Picture(LYING, SOME[:1]),
    Picture(LYING, SOME),
    Picture(STANDING, SOME[1:]),
]
TRAINABLE = list(range(2, 11))
VAL = [Picture(LYING), Picture(STANDING, [CROWD]), *[Picture(LYING, SOME)] * 4, Picture(STANDING, [*SOME, CROWD])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("coco")
    for name, pictures in (("train2017", TRAIN), ("val2017", VAL)):
        describe(root, name, pictures)
        draw(root, name, pictures)
    return root


def order(batches: Any) -> list[list[int]]:
    return [batch["image_index"].tolist() for batch in batches]


def assert_shows_its_images(batch: dict) -> None:
    real = batch["image_index"] >= 0
    assert int(real.sum()) == batch["num_samples"]
    for image, index, (height, width) in zip(
        batch["images"][real], batch["image_index"][real], batch["sizes"][real].int().tolist(), strict=True
    ):
        assert (image[:, :height, :width] == index * GREY_STEP).all()
        assert not image[:, height:].any()
        assert not image[:, :, width:].any()


@pytest.mark.parametrize(("batch_size", "num_processes"), [(1, 1), (4, 1), (16, 1), (2, 2), (3, 3)])
def test_every_trainable_image_counts_exactly_once_an_epoch(folder: Path, batch_size: int, num_processes: int) -> None:
    data = small(folder)
    loaders = [data.train_loader(batch_size, 1, Shard(rank, num_processes, CPU)) for rank in range(num_processes)]
    seen: list[int] = []
    steps = list(zip(*loaders, strict=True))
    assert {len(steps)} == {len(loader) for loader in loaders}
    for batches in steps:
        num_real = sum(batch["num_samples"] for batch in batches)
        assert num_real > 0
        assert len({batch["images"].shape for batch in batches}) == 1
        assert np.ptp([batch["num_samples"] for batch in batches]) <= 1
        for batch in batches:
            assert len(batch["images"]) == batch_size
            assert_shows_its_images(batch)
            real = batch["image_index"] >= 0
            assert set(batch["image_index"][~real].tolist()) <= {-1}
            torch.testing.assert_close(batch["weights"], real * (num_processes / num_real))
            seen += batch["image_index"][real].tolist()
    assert sorted(seen) == TRAINABLE


@pytest.mark.parametrize(("batch_size", "num_processes"), [(1, 1), (16, 1), (2, 2), (3, 3)])
def test_every_validation_image_counts_exactly_once(folder: Path, batch_size: int, num_processes: int) -> None:
    data = small(folder)
    loaders = [data.eval_loader(batch_size, Shard(rank, num_processes, CPU)) for rank in range(num_processes)]
    seen: list[int] = []
    for step in zip(*loaders, strict=True):  # collectives run in step
        for batch in step:
            assert_shows_its_images(batch)
            assert batch["weights"].tolist() == [float(index >= 0) for index in batch["image_index"]]
            seen += [index for index in batch["image_index"].tolist() if index >= 0]
    assert sorted(seen) == list(range(len(VAL)))  # Those without objects are there, too.
    assert {len(order(loader)) for loader in loaders} == {len(loader) for loader in loaders}


def test_boxes_of_evaluation_lead_back_to_the_annotations(folder: Path) -> None:
    for batch in small(folder).eval_loader(2, ALONE):
        scale = ((batch["crops"][:, 2:] - batch["crops"][:, :2]) / batch["sizes"].flip(1)).repeat(1, 2)
        boxes = batch["boxes"] * scale[:, None] + batch["crops"][:, :2].repeat(1, 2)[:, None]
        for index, own, labels in zip(batch["image_index"].tolist(), boxes, batch["labels"], strict=True):
            things = [thing for thing in VAL[index].things if not thing.crowd] if index >= 0 else []
            if index >= 0:
                assert labels[labels > 0].tolist() == [LABELS[thing.category] for thing in things]
                assert own[labels > 0].tolist() == [pytest.approx(thing.box, abs=1e-4) for thing in things]


def test_the_order_follows_from_seed_and_epoch_alone(folder: Path) -> None:
    data = small(folder)
    loader = data.train_loader(2, 1, ALONE)
    np.random.seed(5)
    torch.manual_seed(5)
    epochs = []
    for epoch in range(4):
        loader.set_epoch(epoch)
        epochs.append(order(loader))
    assert len({str(epoch) for epoch in epochs}) == 4
    assert len({str(sorted(sorted(batch) for batch in epoch)) for epoch in epochs}) == 4  # other images go together
    loader.sampler.set_epoch(1)  # what Lightning calls
    assert order(loader) == epochs[1] == order(loader)
    other = data.train_loader(2, 2, ALONE)
    assert order(other) != epochs[0]
    # Global batches are the same sets of images, however many processes share them.
    loaders = [data.train_loader(1, 1, Shard(rank, 2, CPU)) for rank in range(2)]
    shared = [sorted(itertools.chain(*step)) for step in zip(*map(order, loaders), strict=True)]
    assert shared == [sorted(step) for step in epochs[0]]


def test_batches_of_both_canvases_are_mixed(folder: Path) -> None:
    loader = small(folder).train_loader(1, 1, ALONE)
    orders = set()
    for epoch in range(4):
        loader.set_epoch(epoch)
        standing = [TRAIN[index].size == STANDING for (index,) in order(loader)]
        assert sum(standing) == 3
        orders.add(tuple(standing))
        assert len(list(itertools.groupby(standing))) > 2  # neither canvas comes in one go
    assert len(orders) == 4


class Drawn(ShortEdge):
    """Crops at random."""

    def train(self, rng: np.random.RandomState, sizes: np.ndarray, *rest: Any) -> Cut:
        cut = super().train(rng, sizes, *rest)
        return cut._replace(crops=cut.crops * rng.uniform(0.5, 1, (len(sizes), 1)).astype(np.float32))


def test_random_cuts_are_drawn_anew_each_epoch_and_on_each_process_and_come_again(folder: Path) -> None:
    data = small(folder, Drawn(32, 64))

    def drawn(seed: int, rank: int, epoch: int) -> set[float]:
        loader = data.train_loader(2, seed, Shard(rank, 2, CPU))
        loader.set_epoch(epoch)
        return {round(float(crop[2]), 4) for batch in loader for crop in batch["crops"]}

    draws = [drawn(1, 0, 0), drawn(1, 1, 0), drawn(1, 0, 1), drawn(2, 0, 0)]
    assert sum(map(len, draws)) == len(set.union(*draws)) > 20
    assert drawn(1, 0, 0) == draws[0]


def test_crowds_are_not_trained_on(folder: Path) -> None:
    labels = {}
    for batch in small(folder, ShortEdge(32, 64, outlines=True)).train_loader(1, 1, ALONE):
        labels[int(batch["image_index"])] = batch["labels"][batch["labels"] > 0].tolist()
    assert labels == {
        image: [LABELS[thing.category] for thing in TRAIN[image].things if not thing.crowd] for image in TRAINABLE
    }


@pytest.mark.parametrize("outlines", [False, True])
def test_example_batches_are_like_real_ones(folder: Path, outlines: bool) -> None:
    data = small(folder, ShortEdge(32, 64, outlines))
    state = torch.get_rng_state(), str(np.random.get_state())
    examples = {batch["images"].shape[2:]: batch for batch in data.example_batches(3, CPU)}
    assert state[1] == str(np.random.get_state())
    assert torch.equal(state[0], torch.get_rng_state())
    assert examples.keys() == {(32, 64), (64, 32)}
    for batch in itertools.chain(data.train_loader(3, 1, ALONE), data.eval_loader(3, ALONE)):
        example = examples[batch["images"].shape[2:]]
        assert ("edges" in batch, "owner" in batch) == (outlines, outlines)
        assert batch.keys() == example.keys()
        assert type(batch.pop("num_samples")) is type(example["num_samples"]) is int
        for name, tensor in batch.items():
            told = (example[name].shape, example[name].dtype, example[name].stride())
            assert (tensor.shape, tensor.dtype, tensor.stride()) == told, name
        assert batch["images"].is_contiguous(memory_format=torch.channels_last)
    for example in examples.values():
        height, width = example["images"].shape[2:]
        assert example["labels"].max() <= data.num_classes
        assert (example["boxes"] <= torch.tensor((width, height, width, height))).all()
        assert example["images"].float().std() > 1


@pytest.mark.parametrize(
    ("val", "canvases"), [(LYING, [(32, 64)]), (STANDING, [(32, 64), (64, 32)])], ids=["lying", "standing"]
)
def test_there_is_an_example_for_each_canvas_in_use(tmp_path: Path, val: tuple[int, int], canvases: list) -> None:
    describe(tmp_path, "train2017", [Picture(LYING, SOME), Picture(STANDING)])  # the second is not trained on
    describe(tmp_path, "val2017", [Picture(val, SOME)])
    assert [tuple(batch["images"].shape[2:]) for batch in small(tmp_path).example_batches(1, CPU)] == canvases


@pytest.mark.parametrize("part", ["train", "val"])
def test_nothing_is_read_before_the_first_batch_is_asked_for(tmp_path: Path, part: str) -> None:
    for name in ("train2017", "val2017"):
        describe(tmp_path, name, [Picture(LYING, SOME)])
    data = small(tmp_path)
    (tmp_path / f"{part}2017" / "0.jpg").unlink()
    loader = data.train_loader(1, 0, ALONE) if part == "train" else data.eval_loader(1, ALONE)
    assert len(loader) == 1
    batches = iter(loader)
    with pytest.raises(ConfigError, match=rf"{part}2017/0\.jpg cannot be read"):
        next(batches)


def test_an_image_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    for name in ("train2017", "val2017"):
        describe(tmp_path, name, [Picture(LYING, SOME)] * 2)
        draw(tmp_path, name, [Picture(LYING), Picture((20, 31))])
    words = (
        r"{0}/1\.jpg: is \[20, 31\] pixels.*instances_{0}\.json says \[20, 30\]. Next: put the original file in place"
    )
    with pytest.raises(ConfigError, match=words.format("train2017")):
        list(small(tmp_path).train_loader(2, 0, ALONE))
    with pytest.raises(ConfigError, match=words.format("val2017")):
        list(small(tmp_path).eval_loader(2, ALONE))
