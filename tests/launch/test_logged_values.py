"""What a workload of one's own logs with `self.log` is in the journal and in MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import TINY, Launched, launch
from tracking.analysis.results import MlflowRuns
from tracking.record import journal, run_folder

SETTINGS = (*TINY[:2], "model=logging", "gpus=0", "max_epochs=2", "limit_train_batches=5", "log_every_n_steps=2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Two epochs of five steps on two processes; the windows end at the steps 1, 2, 4, 5, 7, 9, 10."""
    return launch(tmp_path_factory.mktemp("logged"), *SETTINGS, "cpu_processes=2", "batch_size=16")


def curve(launched: Launched, key: str) -> list[tuple[int, float]]:
    rows = (record for record, _ in journal.read(launched.folder / run_folder.JOURNAL) if record.kind == "metrics")
    return [(record.step, record.values[key]) for record in rows if key in record.values]


@pytest.mark.slow
def test_a_value_of_a_step_is_a_mean_a_window_and_one_of_an_epoch_one_an_epoch(trained: Launched) -> None:
    assert trained.code == 0, trained.output
    assert curve(trained, "step/number") == [(1, 1), (2, 2), (4, 3.5), (5, 5), (7, 6.5), (9, 8.5), (10, 10)]
    assert curve(trained, "step/tensor_step") == curve(trained, "step/number")
    assert curve(trained, "step/tensor_epoch") == [(5, 3), (10, 8)]
    assert curve(trained, "step/samples") == [(5, 5 * 16), (10, 5 * 16)]
    assert curve(trained, "valid/epoch") == curve(trained, "after/epoch") == [(5, 1), (10, 2)]
    assert curve(trained, "step/dropped") == []


@pytest.mark.slow
def test_a_value_is_that_of_the_first_process_or_of_all_that_are_synced(trained: Launched) -> None:
    assert {value for _, value in curve(trained, "step/rank") + curve(trained, "valid/rank")} == {0.0}
    assert {value for _, value in curve(trained, "step/mean_rank")} == {0.5}
    assert {value for _, value in curve(trained, "step/last_rank")} == {1.0}
    assert len({value for _, value in curve(trained, "valid/samples")}) == 1
    assert curve(trained, "valid/samples")[0][1] > 100, "the evaluation's samples over both processes"


@pytest.mark.slow
def test_values_of_the_first_process_alone_are_named(trained: Launched) -> None:
    tags = [record.values for record, _ in journal.read(trained.folder / run_folder.JOURNAL) if record.kind == "tags"]
    [keys] = [values["of_first_process"] for values in tags if "of_first_process" in values]
    assert {"eval/own_count", "step/rank", "valid/rank", "step/tensor_epoch"} <= set(keys.split(", "))
    assert not {"eval/accuracy", "step/mean_rank", "step/last_rank", "valid/samples"} & set(keys.split(", "))
    assert (
        "values of the first process alone, not of all 2: eval/own_count" in (trained.folder / "worker.log").read_text()
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_mlflow_has_the_same_curves(trained: Launched) -> None:
    store = MlflowRuns(f"sqlite:///{trained.cwd / 'mlflow.db'}")
    (run,) = store.find(["timetrial"])
    keys = ["step/number", "step/tensor_epoch", "valid/samples"]
    history = store.history(run, keys)
    for key in keys:
        assert [(step, value) for step, _, value in history[key]] == curve(trained, key), key


@pytest.mark.slow
def test_a_name_of_ours_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    launched = launch(tmp_path, *SETTINGS, "+model.hparams.name=time/to_accuracy_sec", "tracking.offline=true")
    assert launched.code == 2
    failure = launched.result["failure"]
    assert failure["kind"] == "bad_input"
    assert "self.log('time/to_accuracy_sec')" in failure["message"]
    assert "give another one, such as train/<name>" in failure["message"]
    assert curve(launched, "train/loss") == []
