"""The documented example of a workload of one's own runs, from the folder of somebody who never edits ours."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from tests.support.commands import ROOT, launch
from tests.support.composing import composed
from trainers.workload import TrialModule, load_workload

EXAMPLE = ROOT / "docs" / "examples" / "own_workload"


@pytest.mark.slow
def test_it_trains_through_launch(tmp_path: Path) -> None:
    settings = ("model=linear", "max_epochs=1", "limit_train_batches=2", "gpus=0", "tracking.offline=true")
    path = f"{EXAMPLE}:{ROOT}"
    launched = launch(tmp_path, "--config-dir", str(EXAMPLE / "conf"), *settings, PYTHONPATH=path)
    assert launched.code == 0, launched.output
    assert launched.result["status"] == "finished"
    assert launched.result["targets"] == {"accuracy": 0.9}
    assert 0 <= launched.result["metrics"]["test/accuracy"] <= 1
    assert not (tmp_path / "mlflow.db").exists()  # offline


def test_its_hyperparameters_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    importlib.invalidate_caches()
    config = composed(["model=linear"], EXAMPLE / "conf")
    workload = load_workload(config)
    assert issubclass(workload.module, TrialModule)  # type: ignore[arg-type]
    given = {"data": None, "learning_rate": 0.1, "weight_decay": 0.0}
    inspect.signature(workload.module).bind(**given, **config.model.hparams)
    assert set(config.model.targets) == set(workload.data)
