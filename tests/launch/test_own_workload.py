"""The documented example of a workload of one's own runs, from the folder of somebody who never edits ours."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
import torch

from tests.support.commands import ROOT, launch
from tests.support.composing import composed
from timetrial import digits
from trainers.workload import TrialModule, load_workload

EXAMPLE = ROOT / "docs" / "examples" / "own_workload"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "metric", "target"), [("linear", "accuracy", 0.9), ("linear_top5", "top5_accuracy", 0.99)]
)
def test_it_trains_through_launch(tmp_path: Path, model: str, metric: str, target: float) -> None:
    settings = (f"model={model}", "max_epochs=1", "limit_train_batches=2", "gpus=0", "tracking.offline=true")
    path = f"{EXAMPLE}:{ROOT}"
    launched = launch(tmp_path, "--config-dir", str(EXAMPLE / "conf"), *settings, PYTHONPATH=path)
    assert launched.code == 0, launched.output
    assert launched.result["status"] == "finished"
    assert launched.result["targets"] == {metric: target}
    assert 0 <= launched.result["metrics"]["test/accuracy"] <= launched.result["metrics"][f"test/{metric}"] <= 1
    assert not (tmp_path / "mlflow.db").exists()  # offline


@pytest.mark.parametrize("model", ["linear", "linear_top5"])
def test_its_hyperparameters_bind(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    importlib.invalidate_caches()
    config = composed([f"model={model}"], EXAMPLE / "conf")
    workload = load_workload(config)
    assert issubclass(workload.module, TrialModule)  # type: ignore[arg-type]
    given = {"data": None, "learning_rate": 0.1, "weight_decay": 0.0}
    inspect.signature(workload.module).bind(**given, **config.model.hparams)
    assert set(config.model.targets) == set(workload.data)


def test_its_metric_counts_labels_among_the_five_likeliest_of_real_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    importlib.invalidate_caches()
    module = load_workload(composed(["model=linear_top5"], EXAMPLE / "conf")).module
    linear = module(digits(), 0.1, 0.0, 1)
    linear.net = torch.nn.Flatten()  # Each class's logit is a pixel.
    images = torch.arange(10).repeat(4, 1)[:, None, None, :]  # The five likeliest classes are 5 to 9.
    for labels, weights in (([5, 4, 9, 9], [1.0, 1.0, 1.0, 0.0]), ([0, 1, 2, 7], [0.0, 0.5, 0.0, 0.5])):
        linear.validation_step({"images": images, "labels": torch.tensor(labels), "weights": torch.tensor(weights)}, 0)
    assert linear.metrics()["top5_accuracy"] == 3 / 5
