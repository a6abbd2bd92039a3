"""Generated batches look like real ones, and come again with the same seed and process."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from conf.schema import ConfigError
from tests.trainers.processes import ALONE, CPU
from trainers.data.detection.batch import EDGES_STEP
from trainers.data.detection.synthetic import CLASSES, CORNERS, OBJECTS, ROOM, SyntheticDetection, generated_batch
from trainers.data.detection.view import ShortEdge
from trainers.data.loading.synthetic_loader import NUM_BATCHES
from trainers.data.loading.types import Shard
from trainers.models.maskrcnn.masks import rasterise

CANVAS = (32, 64)


def synthetic(**options: Any) -> SyntheticDetection:
    return SyntheticDetection(**options).viewed(ShortEdge(32, 64))


def test_batches_have_the_shapes_and_types_of_real_ones() -> None:
    batch = generated_batch(3, CANVAS, 8, 5, True, CPU)
    layout = {
        name: (tuple(tensor.shape), tensor.dtype) for name, tensor in batch.items() if isinstance(tensor, torch.Tensor)
    }
    assert layout == {
        "images": ((3, 3, 32, 64), torch.uint8),
        "sizes": ((3, 2), torch.float32),
        "boxes": ((3, 8, 4), torch.float32),
        "labels": ((3, 8), torch.int64),
        "weights": ((3,), torch.float32),
        "image_index": ((3,), torch.int64),
        "crops": ((3, 4), torch.float32),
        "edges": ((EDGES_STEP, 4), torch.float32),
        "owner": ((EDGES_STEP,), torch.int64),
    }
    assert batch["images"].is_contiguous(memory_format=torch.channels_last)
    assert batch["num_samples"] == 3
    assert batch["weights"].sum() == pytest.approx(1)
    assert batch["image_index"].tolist() == [-1] * 3
    assert generated_batch(3, CANVAS, 8, 5, False, CPU).keys() == batch.keys() - {"edges", "owner"}


def test_objects_lie_on_the_canvas_and_fill_their_boxes() -> None:
    batch = generated_batch(2, CANVAS, 8, 5, True, CPU)
    boxes, labels = batch["boxes"], batch["labels"]
    assert ((labels >= 1) & (labels <= 5)).sum(dim=1).tolist() == [OBJECTS] * 2
    assert not boxes[labels == 0].any()
    assert (boxes >= 0).all()
    assert (boxes <= torch.tensor([64, 32, 64, 32])).all()
    assert (boxes[..., 2:] > boxes[..., :2])[labels > 0].all()
    assert torch.bincount(batch["owner"])[: 2 * 8].tolist() == ([CORNERS] * OBJECTS + [0]) * 2
    filled = rasterise(batch["edges"], batch["owner"], boxes.flatten(0, 1), 32).float().mean(dim=(1, 2))
    expected = torch.where(labels.flatten() > 0, np.pi / 4, 0)  # an ellipse's share of its box
    torch.testing.assert_close(filled, expected.float(), atol=0.03, rtol=0)


def test_there_is_nothing_to_evaluate() -> None:
    assert synthetic().eval_loader(2, ALONE) is None
    assert synthetic().test_loader(2, ALONE) is None


def test_an_epoch_is_of_its_size_over_all_processes() -> None:
    for size, num_batches in ((3, 1), (12, 3), (15, 4), (16, 4)):
        loaders = [synthetic(size=size).train_loader(2, 0, Shard(rank, 2, CPU)) for rank in range(2)]
        steps = list(zip(*loaders, strict=True))
        assert [len(loader) for loader in loaders] == [len(steps)] * 2 == [num_batches] * 2
        for batch in itertools.chain(*steps):
            assert int((batch["weights"] > 0).sum()) == batch["num_samples"]
        assert sum(batch["num_samples"] for batch in itertools.chain(*steps)) == size


def test_seeds_and_processes_have_batches_of_their_own() -> None:
    data = synthetic(size=2 * NUM_BATCHES + 2)
    torch.manual_seed(5)
    np.random.seed(5)
    state = torch.get_rng_state(), str(np.random.get_state())

    def sums(seed: int, rank: int) -> list[int]:
        return [int(batch["images"].sum()) for batch in data.train_loader(1, seed, Shard(rank, 2, CPU))]

    first = sums(0, 0)
    assert len(set(first)) == NUM_BATCHES
    assert first == sums(0, 0) == (first[:NUM_BATCHES] * 2)[: len(first)]  # served in turns
    assert not set(first) & set(sums(0, 1))
    assert not set(first) & set(sums(7, 0))
    assert sums(2**64 + 3, 0)  # no seed is too large
    assert torch.equal(state[0], torch.get_rng_state())
    assert state[1] == str(np.random.get_state())


def test_examples_are_as_the_batches_will_be() -> None:
    few = {"num_classes": 3, "num_objects": 5}
    for options, canvas, num_objects, num_classes in (
        ({}, CANVAS, ROOM, CLASSES),
        ({"canvas": (96, 32)}, (96, 32), ROOM, CLASSES),
        (few, CANVAS, 5, 3),
    ):
        data = synthetic(size=2, **options)
        (example,) = data.example_batches(2, CPU)
        (batch,) = data.train_loader(2, 3, ALONE)
        assert example.keys() == batch.keys()
        assert batch["images"].shape == example["images"].shape == (2, 3, *canvas)
        assert batch["boxes"].shape == example["boxes"].shape == (2, num_objects, 4)
        assert 0 < batch["labels"].max() <= data.num_classes == num_classes == len(data.class_names)


@pytest.mark.parametrize("option", ["size", "num_classes", "num_objects"])
def test_no_batch_of_nothing(option: str) -> None:
    with pytest.raises(ConfigError, match=f"dataset.{option}=0: must be 1 or more"):
        synthetic(**{option: 0})
