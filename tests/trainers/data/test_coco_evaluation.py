"""COCO's average precision: pycocotools' figures, on any number of processes."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from tests.trainers import processes
from tests.trainers.coco_files import random_content, write
from tests.trainers.coco_reference import by_pycocotools, ellipse
from trainers.data.coco import average_precision
from trainers.data.coco.average_precision import DetectionEvaluator
from trainers.data.coco.index import CocoIndex, load_index

NUM_CLASSES = 4


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> CocoIndex:
    root = tmp_path_factory.mktemp("coco")
    content = random_content(np.random.default_rng(0), 40, NUM_CLASSES)
    content["annotations"][0]["bbox"][2] = 0.0  # left out of the index; the protocol counts it all the same
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMETRIAL_CACHE", str(root / "cache"))
        return load_index(write(root, content, "val2017"), "val")


def detections(index: CocoIndex, seed: int = 0) -> dict[str, Any]:
    """Shifted objects, some of the wrong class and with equal scores, more than count for some images."""
    rng = np.random.default_rng(seed)
    object_image = np.repeat(np.arange(len(index.image_ids)), np.diff(index.object_start))
    chosen = rng.integers(0, len(index.boxes), 1500)
    image = object_image[chosen]
    crowded = rng.random(1500) < 0.2
    image[crowded] = image[0]
    boxes = index.boxes[chosen] + rng.normal(0, 2, (1500, 4))
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    labels = np.where(rng.random(1500) < 0.7, index.labels[chosen], rng.integers(1, NUM_CLASSES + 1, 1500))
    labels[crowded] = 1
    masks = [ellipse(box, *index.sizes[i].tolist()) for box, i in zip(boxes, image, strict=True)]
    scores = rng.random(1500).round(2)
    return {
        "image_index": image,
        "boxes": boxes.astype(np.float32),
        "scores": scores.astype(np.float32),
        "labels": labels,
        "masks": masks,
    }


def part(fields: dict[str, Any], chosen: np.ndarray) -> dict[str, Any]:
    return {
        key: [value[i] for i in np.flatnonzero(chosen)] if key == "masks" else value[chosen]
        for key, value in fields.items()
    }


def test_figures_are_those_of_pycocotools(index: CocoIndex, capfd: pytest.CaptureFixture[str]) -> None:
    evaluator = DetectionEvaluator(index, ("bbox", "segm"))
    assert index.crowd.sum() > 5
    for seed in (0, 1):  # the second time with the annotations that were read the first time
        fields = detections(index, seed)
        expected = {"box": by_pycocotools(index, fields, "bbox"), "mask": by_pycocotools(index, fields, "segm")}
        first = np.arange(1500) < 700
        evaluator.add(**part(fields, first))
        evaluator.add(**part(fields, ~first))
        metrics = evaluator.compute()
        assert list(metrics) == ["box_map", "box_map_50", "mask_map", "mask_map_50"]
        for name, (mean, at_50) in expected.items():
            assert 0.1 < mean < at_50 < 0.9
            assert metrics[f"{name}_map"] == pytest.approx(mean, abs=1e-9)
            assert metrics[f"{name}_map_50"] == pytest.approx(at_50, abs=1e-9)
    assert capfd.readouterr() == ("", "")


def test_boxes_alone_need_no_masks(index: CocoIndex) -> None:
    fields = detections(index)
    both, boxes = DetectionEvaluator(index, ("bbox", "segm")), DetectionEvaluator(index)
    both.add(**fields)
    boxes.add(**{key: value for key, value in fields.items() if key != "masks"})
    expected = both.compute()
    assert boxes.compute() == {name: expected[name] for name in ("box_map", "box_map_50")}


def test_the_objects_themselves_score_one(index: CocoIndex) -> None:
    own = np.flatnonzero(~index.crowd)
    image = np.repeat(np.arange(len(index.image_ids)), np.diff(index.object_start))[own]
    evaluator = DetectionEvaluator(index)
    evaluator.add(image, index.boxes[own], np.ones(len(own)), index.labels[own])
    # One object has no width: it cannot be found, and its class stays below 1.
    assert 0.97 < evaluator.compute()["box_map"] < 1


def test_no_detections_are_worth_nothing(index: CocoIndex) -> None:
    evaluator = DetectionEvaluator(index, ("bbox", "segm"))
    assert evaluator.compute() == {"box_map": 0.0, "box_map_50": 0.0, "mask_map": 0.0, "mask_map_50": 0.0}
    fields = detections(index)
    evaluator.add(**fields)
    assert evaluator.compute()["box_map"] > 0
    assert evaluator.compute()["box_map"] == 0  # it was emptied


def test_annotations_are_not_read_before_there_are_detections(index: CocoIndex) -> None:
    """The warm-up evaluates too, before the clock; reading them belongs on it."""
    evaluator = DetectionEvaluator(dataclasses.replace(index, annotations=Path("missing.json")), ("bbox", "segm"))
    evaluator.compute()
    evaluator.add(**detections(index))
    with pytest.raises(FileNotFoundError, match="missing"):
        evaluator.compute()


def test_outlines_that_are_none_are_never_matched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    content = random_content(np.random.default_rng(1), 6, 1)
    own = [annotation for annotation in content["annotations"] if not annotation["iscrowd"]]
    own[0]["segmentation"] = []
    own[1]["segmentation"] = [[1.0, 2.0, 3.0, 4.0]]
    for annotation in content["annotations"]:
        del annotation["id"]
    index = load_index(write(tmp_path, content, "val2017"), "val")
    objects = np.flatnonzero(~index.crowd)
    image = np.repeat(np.arange(6), np.diff(index.object_start))[objects]
    masks = [ellipse(box, *index.sizes[i].tolist()) for box, i in zip(index.boxes[objects], image, strict=True)]
    evaluator = DetectionEvaluator(index, ("segm",))
    evaluator.add(image, index.boxes[objects], np.ones(len(objects)), index.labels[objects], masks)
    # 101 recalls; those up to the share that has an outline are reached at full precision.
    share = (len(own) - 2) / len(own)
    assert len(objects) == len(own) - 2 > 5
    assert evaluator.compute()["mask_map_50"] == pytest.approx(np.floor(share * 100 + 1) / 101)


def _share(rank: int, port: int, index: CocoIndex, result: Path) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        evaluator = DetectionEvaluator(index, ("bbox", "segm"))
        empty = evaluator.compute()
        fields = detections(index)
        evaluator.add(**part(fields, fields["image_index"] % 2 == 1 - rank))
        shared = evaluator.compute()
        average_precision.MAX_EVALUATORS = 1  # process 1 has none of the classes
        evaluator.add(**part(fields, fields["image_index"] % 2 == 1 - rank))
        result.write_text(repr([[*metrics.values()] for metrics in (empty, shared, evaluator.compute())]))
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_find_what_one_finds_to_the_last_digit(
    index: CocoIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = DetectionEvaluator(index, ("bbox", "segm"))
    single.add(**detections(index))
    expected = list(single.compute().values())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = [tmp_path / "rank0", tmp_path / "rank1"]
    other = processes.context().Process(target=_share, args=(1, port, index, results[1]))
    monkeypatch.setattr(
        average_precision, "MAX_EVALUATORS", average_precision.MAX_EVALUATORS
    )  # This puts it back at the end.
    other.start()
    _share(0, port, index, results[0])  # the test's own process is the first of the two: importing takes seconds
    other.join(60)
    assert other.exitcode == 0
    assert [result.read_text() for result in results] == [repr([[0.0] * 4, expected, expected])] * 2
