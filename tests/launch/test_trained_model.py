"""The trained model is kept where it is asked for, and can be loaded again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient

from tests.support.commands import ROOT, TINY, Launched, begin, collect, events, launch
from tracking.record import exported_model, run_folder
from tracking.store.mirror.mirror import Mirror
from trainers.loop.load_model import load_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SMALL = (
    *TINY, "model.workload=tests.workloads.peaking:WORKLOAD", "gpus=0", "max_epochs=4", "limit_train_batches=2",
    "target=0.9", "tracking.system_metrics_interval_sec=0",
)  # fmt: skip
DOCS = (ROOT / "docs" / "trained-model.md").read_text(encoding="utf-8")


def saved(launched: Launched) -> dict[str, Any]:
    assert launched.code == 0, launched.output
    return torch.load(launched.folder / run_folder.MODEL, weights_only=True)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def final(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    cwd = tmp_path_factory.mktemp("final")
    return launch(cwd, *SMALL, "save_model=final", "tracking.upload_model=true", EVALUATED=str(cwd))


def test_the_final_weights_are_those_of_the_last_evaluation_and_say_where_they_are_from(final: Launched) -> None:
    content = saved(final)
    assert same(content["state_dict"], torch.load(final.cwd / "4.pt", weights_only=True))
    assert (content["model"], content["kept"], content["evaluation"]) == ("tiny", "final", {})
    assert content["config"]["model"]["workload"] == "tests.workloads.peaking:WORKLOAD"
    assert content["versions"]["env.torch"].startswith(torch.__version__.split("+")[0])
    assert "model.pt" in final.output


def test_it_becomes_an_artifact_where_that_is_asked_for(final: Launched) -> None:
    client = MlflowClient(f"sqlite:///{final.cwd / 'mlflow.db'}")
    run_id = Mirror(final.folder).run_id
    assert run_id
    assert run_folder.MODEL in {file.path for file in client.list_artifacts(run_id)}


def test_what_the_docs_say_loads_it(final: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    monkeypatch.chdir(final.folder)
    names: dict[str, Any] = {}
    exec(code, names)
    assert not names["module"].training
    assert same(names["module"].state_dict(), saved(final)["state_dict"])


def test_the_best_weights_are_those_of_the_best_evaluation_over_processes_too(tmp_path: Path) -> None:
    launched = launch(
        tmp_path, *SMALL, "save_model=best", "cpu_processes=2", "batch_size=32", EVALUATED=str(tmp_path)
    )  # fmt: skip
    content = saved(launched)
    assert content["evaluation"] == {"epoch_num": 2, "step": 4, "metrics": {"accuracy": 0.6}}
    assert same(content["state_dict"], torch.load(tmp_path / "2.pt", weights_only=True))
    assert load_model(launched.folder / run_folder.MODEL).training is False
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    names = {file.path for file in client.list_artifacts(Mirror(launched.folder).run_id or "")}
    assert run_folder.RESULT in names
    assert run_folder.MODEL not in names


def test_a_resumed_run_keeps_its_best(tmp_path: Path) -> None:
    marker = tmp_path / "mended"
    fault = ("model.hparams.fault=error", f"model.hparams.marker={marker}", "checkpoint_every_epochs=1")
    failed = launch(
        tmp_path, *SMALL, *fault, "save_model=best", "log_model=true", "tracking.offline=true", EVALUATED=str(tmp_path)
    )  # fmt: skip
    assert failed.result["failure"]["kind"] == "error", "in its third epoch"
    assert not (failed.folder / run_folder.MODEL).exists()
    assert "no model for MLflow, since the run has not finished" in failed.output
    assert exported_model.read(failed.folder) is None
    marker.touch()
    content = saved(launch(tmp_path, f"resume={failed.folder}"))
    assert content["evaluation"]["epoch_num"] == 2
    assert same(content["state_dict"], torch.load(tmp_path / "2.pt", weights_only=True))
    exported = exported_model.read(failed.folder)
    assert exported is not None
    assert (exported.kept, exported.step) == ("best", content["evaluation"]["step"])
    program = torch.export.load(failed.folder / exported_model.PROGRAM)
    assert same(dict(program.state_dict), content["state_dict"])


def test_without_room_for_it_the_run_has_its_result(tmp_path: Path) -> None:
    """The weights of a VGG are larger than any file may be here."""
    small = (
        "model=vgg",
        "gpus=0",
        "max_epochs=1",
        "limit_train_batches=1",
        "save_model=final",
        "log_model=true",
        "tracking.offline=true",
    )
    launched = collect(begin(tmp_path, *small, max_file_bytes=2**20), tmp_path)
    assert launched.code == 0, launched.output
    assert launched.result["status"] == "finished"
    assert "the weights were not saved: [Errno 27] File too large" in launched.output
    assert not (launched.folder / run_folder.MODEL).exists()
    (event,) = events(launched.folder, "model_saved")
    assert "File too large" in event.values["error"]
    (event,) = events(launched.folder, "model_exported")
    assert "File too large" in event.values["error"]
    assert "no model for MLflow: OSError: [Errno 27] File too large" in launched.output
    assert not [name for name in exported_model.FILES if (launched.folder / name).exists()]


def test_the_best_of_what_is_not_evaluated_is_refused(tmp_path: Path) -> None:
    synthetic = ("model=ssd", "dataset=synthetic", "gpus=0", "batch_size=1", "tracking.offline=true")
    launched = launch(tmp_path, *synthetic, "save_model=best")
    assert launched.code == 2
    assert "save_model=best: dataset=synthetic has nothing to evaluate on" in launched.result["failure"]["message"]
