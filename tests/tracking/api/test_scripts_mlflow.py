"""A script that uses MLflow itself: its server and experiment are used, and the two runs of a training are linked."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.tracking import fluent
from pytorch_lightning.loggers import MLFlowLogger

from tests.support.commands import HANGS_SEC
from tests.tracking.api import own_script
from tracking.api.script_process import THIS_PROCESS
from tracking.lightning import TimeTrial, time_trial
from tracking.record import run_folder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def uri(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch, mlflow_environment: None) -> str:
    """A script's own database; what it tells MLflow is forgotten afterwards."""
    shutil.copy(empty_database, tmp_path / "own.db")
    monkeypatch.setattr(fluent, "_active_experiment_id", None)
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path / 'own.db'}"


def loop(**options: Any) -> None:
    with time_trial({"accuracy": 0.9}, device="cpu", system_metrics_interval_sec=0, **options) as trial:
        trial.step(8)
        trial.evaluate({"accuracy": 0.95}, epoch=1)


def uploaded(uri: str) -> mlflow.entities.Run:
    """The run in MLflow of the only run folder, once its companion has ended."""
    for companion in THIS_PROCESS.companions:
        companion.wait(HANGS_SEC)
    (folder,) = Path("runs").glob("2*")
    info = run_folder.read_info(folder)
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(info.experiment)
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`timetrial.uid` = '{info.uid}'")
    return run


def test_the_scripts_server_and_experiment_are_used_and_its_active_run_is_linked(uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("theirs")
    with mlflow.start_run() as own:
        loop()
    run = uploaded(uri)
    assert run.info.experiment_id == own.info.experiment_id
    assert run.data.tags["script.mlflow_run"] == own.info.run_id
    assert mlflow.get_run(own.info.run_id).data.tags["timetrial.run"] == run.info.run_id


def test_what_the_script_gives_us_wins(uri: str, tmp_path: Path) -> None:
    mlflow.set_tracking_uri("sqlite:///nowhere.db")
    loop(uri=uri, experiment="ours")
    run = uploaded(uri)
    assert "script.mlflow_run" not in run.data.tags
    assert not (tmp_path / "nowhere.db").exists()


def test_the_run_of_lightnings_logger_is_linked(uri: str) -> None:
    logger = MLFlowLogger("lightnings", tracking_uri=uri)
    trial = TimeTrial({"val_loss": "<=1"}, system_metrics_interval_sec=0)
    own_script.trainer(trial, max_epochs=1, logger=logger).fit(own_script.Line(), *own_script.loaders())
    run = uploaded(uri)
    assert run.data.tags["script.mlflow_run"] == logger.run_id
    assert mlflow.MlflowClient(uri).get_run(logger.run_id).data.tags["timetrial.run"] == run.info.run_id


@pytest.mark.exhaustive
def test_runs_in_plain_folders_are_not_ours_and_that_is_said(
    uri: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], empty_database: Path
) -> None:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    mlflow.set_tracking_uri(f"file:{tmp_path}/mlruns")
    loop()
    assert uploaded(f"sqlite:///{tmp_path / 'mlflow.db'}").data.metrics["target_reached"] == 1
    assert "uploads go to sqlite:///mlflow.db, since MLFLOW_TRACKING_URI=file:" in capfd.readouterr().out


def test_a_script_that_does_not_import_mlflow_is_in_our_experiment(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mlflow")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "another program's")
    loop(offline=True)
    (folder,) = Path("runs").glob("2*")
    assert run_folder.read_info(folder).experiment == "timetrial"
