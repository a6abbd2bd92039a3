"""Detectors from the command line on drawn images: to average precision, over two processes, and in fp16 on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.support.commands import Launched, events, launch

pytestmark = pytest.mark.slow

NUM_TRAIN = 12
NUM_STEPS = 12
SMALL = ("gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0")


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("vision")
    return launch(
        folder, "model=ssd", "recipe=ssd_cpu", f"dataset.size={NUM_TRAIN}", "batch_size=4", "max_epochs=1",
        "cpu_processes=2", *SMALL,
        TIMETRIAL_CACHE=str(folder / "cache"),
    )  # fmt: skip


def test_it_trains_and_evaluates_on_two_processes(detector: Launched) -> None:
    assert detector.code == 0, detector.output
    metrics = detector.result["metrics"]
    assert metrics["world_size"] == 2
    assert metrics["target_reached"] == 0  # after one epoch of a dozen images
    assert metrics["time/index_sec"] > 0
    (evaluation,) = detector.result["evaluations"]
    assert evaluation["metrics"].keys() == {"box_map", "box_map_50"}
    assert "evaluation" in detector.output


def test_every_image_with_an_object_is_counted_once(detector: Launched) -> None:
    (annotations,) = detector.cwd.rglob("instances_train2017.json")
    content = json.loads(annotations.read_text())
    trainable = {annotation["image_id"] for annotation in content["annotations"] if not annotation["iscrowd"]}
    (epoch,) = events(detector.folder, "epoch_stop")
    assert epoch.values["samples"] == len(trainable) <= NUM_TRAIN


def test_a_missing_image_is_named_before_anything_trains(detector: Launched, tmp_path: Path) -> None:
    (image,) = detector.cwd.rglob("val2017/000000000003.jpg")
    image.unlink()
    again = launch(
        tmp_path, "model=ssd", "dataset=coco", f"dataset.path={image.parent.parent}", *SMALL,
        TIMETRIAL_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert again.code == 2
    assert again.result["failure"]["kind"] == "bad_input"
    assert image.name in again.result["failure"]["message"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("model", ["ssd", "maskrcnn"])
def test_in_fp16_a_detector_trains_also_where_its_first_steps_are_skipped(tmp_path: Path, model: str) -> None:
    """Gradients times 65,536 overflow in the first steps: without a start, the momentum was what the memory held."""
    run = launch(
        tmp_path, f"model={model}", f"recipe={model}_cpu", f"dataset.size={4 * NUM_STEPS}", "batch_size=4",
        "max_epochs=1", f"limit_train_batches={NUM_STEPS}", "log_every_n_steps=1", "gpus=1", "precision=fp16",
        "compile=false", "tracking.offline=true", TIMETRIAL_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert run.code == 0, run.output
    assert run.result["status"] == "finished"
    assert len(events(run.folder, "throughput_window")) == NUM_STEPS
