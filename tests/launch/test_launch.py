"""One run through launch.py, from the command line to MLflow."""

from __future__ import annotations

import csv
import re
import signal
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.support.commands import HANGS_SEC, TINY, Launched, collect, events, launch, start
from tests.support.folders import wait_for
from tracking.base.time_parts import INIT_PARTS
from tracking.record import journal, run_folder
from tracking.store.mirror.mirror import Mirror

pytestmark = pytest.mark.slow


def client(launched: Launched) -> MlflowClient:
    return MlflowClient(f"sqlite:///{launched.cwd / 'mlflow.db'}")


def mlflow_run(launched: Launched) -> Run:  # mlflow's Run
    run_id = Mirror(launched.folder).run_id
    assert run_id
    return client(launched).get_run(run_id)


@pytest.fixture(scope="module")
def vgg(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """A short run of the default workload, with a price and a target that it reaches at its first evaluation."""
    settings = ("max_epochs=2", "limit_train_batches=4", "batch_size=16", "log_every_n_steps=2", "target=0.01")
    return launch(tmp_path_factory.mktemp("vgg"), *settings, "instance=p3_2xlarge", "gpus=0", "seed=7")


def test_it_ends_well_and_says_what_it_found(vgg: Launched) -> None:
    assert vgg.code == 0, vgg.output
    for words in ("target", "MLPerf's clock", "DAWNBench's", "images/s", vgg.folder.name, "mlflow ui", "/#/"):
        assert words in vgg.output


def test_params_and_tags_are_those_of_the_contract(vgg: Launched) -> None:
    data = mlflow_run(vgg).data
    expected = {
        "model": "vgg", "dataset": "digits", "precision": "fp32", "gpus": "0", "nodes": "1", "stack": "native",
        "seed": "7", "target_metric": "accuracy", "target_value": "0.01", "max_epochs": "2", "batch_size": "16",
        "global_batch_size": "16", "limit_train_batches": "4", "instance": "p3_2xlarge", "optimizer/name": "adam",
    }  # fmt: skip
    assert expected.items() <= data.params.items()
    assert len(data.params) < 40
    tags = {"env.torch", "env.cpu", "env.kernel", "env.python", "env.node", "env.stack_id", "config_hash", "env.gpu"}
    assert tags | {"data.version"} <= data.tags.keys()
    assert data.tags["env.gpu"] == "none"


def test_metrics_agree_with_the_result_and_with_each_other(vgg: Launched) -> None:
    metrics = mlflow_run(vgg).data.metrics
    result = vgg.result
    for key, value in result["metrics"].items():
        assert metrics[key] == pytest.approx(value), key
    assert metrics["world_size"] == 1
    assert metrics["target_reached"] == 1
    assert metrics["epochs/to_accuracy"] == 1
    assert 0 < metrics["time/to_accuracy_train_sec"] < metrics["time/to_accuracy_sec"]
    assert metrics["time/to_accuracy_sec"] < metrics["time/init_sec"] + metrics["time/to_accuracy_sec"]
    parts = [value for key, value in metrics.items() if re.fullmatch(r"time/(init_.+|compile)_sec", key)]
    assert sum(parts) == pytest.approx(metrics["time/init_sec"])
    assert min(parts) >= 0
    assert len(parts) == len(INIT_PARTS) + 1
    start, tags = result["start"], mlflow_run(vgg).data.tags
    assert {start[name] == tags[f"env.{name}"] for name in ("stack_id", "hardware_id")} == {True}
    assert (start["model"], start["precision"], start["batch_size"], start["world_size"]) == ("vgg", "fp32", 16, 1)
    assert (start["compile"], start["stack"], "num_compiled" in start) == (False, "native", False)
    assert metrics["cost/to_accuracy_usd"] == pytest.approx(3.06 / 3600 * metrics["time/to_accuracy_sec"])
    assert 0 <= metrics["throughput/data_wait_fraction"] <= 1
    assert {"train/loss", "eval/accuracy", "system/cpu_utilization_percentage"} <= metrics.keys()
    assert {"system/disk_write_megabytes_per_sec", "system/network_receive_megabytes_per_sec"} <= metrics.keys()


def test_mlflow_draws_curves_of_what_has_them_and_bars_of_the_rest(vgg: Launched) -> None:
    """Its chart of a metric is a curve where a step is above 0; a metric's value is that of its last step."""
    steps: dict[str, list[int]] = {}
    for record, _ in journal.read(vgg.folder / run_folder.JOURNAL):
        for key in record.values if record.kind == "metrics" else ():
            steps.setdefault(key, []).append(record.step)
    curves = {"train/loss", "eval/accuracy", "eval/loss", "epoch", "throughput/samples_per_sec"}
    for key in vgg.result["metrics"].keys() - curves:
        assert steps[key] == [0], key
    assert steps["throughput/samples_per_sec"] == sorted(steps["throughput/samples_per_sec"])
    assert len(steps["throughput/samples_per_sec"]) > 1
    assert min(steps["train/loss"]) > 0


def test_the_run_stops_at_its_target_and_its_events_are_mllogs(vgg: Launched) -> None:
    keys = [event.key for event in journal.events(vgg.folder / run_folder.JOURNAL)]
    clock = [key for key in keys if key != "throughput_window"]
    assert clock == [
        "init_start", "import_start", "import_stop", "process_group_start", "process_group_stop", "import_start",
        "import_stop", "index_start", "index_stop", "model_start", "model_stop", "loaders_start", "loaders_stop",
        "trainer_start", "train_samples", "eval_samples", "trainer_stop", "warmup_start", "warmup_stop",
        "init_stop", "run_start", "epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop", "run_stop",
    ]  # fmt: skip
    assert keys.count("throughput_window") == 3  # the first step is one of its own


def test_the_run_is_finished_and_its_files_are_artifacts(vgg: Launched) -> None:
    run = mlflow_run(vgg)
    assert run.info.status == "FINISHED"
    assert run.info.end_time > run.info.start_time
    names = {file.path for file in client(vgg).list_artifacts(run.info.run_id)}
    expected = {"config.yaml", "overrides.yaml", "fingerprint.json", "requirements.txt", "worker.log", "result.json"}
    assert expected | {"confusion_matrix.png", "confusion_matrix.csv"} <= names


def test_the_confusion_matrix_holds_every_test_sample(vgg: Launched) -> None:
    rows = list(csv.reader((vgg.folder / "confusion_matrix.csv").read_text().splitlines()))
    counts = [[int(value) for value in row[1:]] for row in rows[1:]]
    total = sum(map(sum, counts))
    right = sum(counts[index][index] for index in range(len(counts)))
    assert vgg.result["metrics"]["test/accuracy"] == pytest.approx(right / total)


def test_stdout_and_warnings_go_to_the_log_and_hydra_leaves_nothing(vgg: Launched) -> None:
    assert {path.name for path in vgg.cwd.iterdir()} == {"runs", "mlflow.db", ".mlflow.db.lock", "mlartifacts"}


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "SIGINT"), pytest.param(signal.SIGTERM, "SIGTERM", marks=pytest.mark.exhaustive)],
)
def test_a_stopped_run_is_killed_in_mlflow_and_leaves_no_process(tmp_path: Path, number: int, name: str) -> None:
    process = start(tmp_path, *TINY, "model.hparams.fault=hang")
    wait_for_event(tmp_path, "epoch_start")
    process.send_signal(number)
    launched = collect(process, tmp_path)
    assert launched.code == 1
    assert f"stopped by {name}" in launched.output
    run = mlflow_run(launched)
    assert run.info.status == "KILLED"
    assert run.data.tags["failure"] == f"signal:{int(number)}"
    assert not processes_of(launched.folder)


def test_a_run_that_takes_too_long_fails_with_timeout(tmp_path: Path) -> None:
    launched = launch(tmp_path, *TINY, "model.hparams.fault=hang", "timeout_sec=5", "tracking.offline=true")
    assert launched.code == 1
    assert launched.result["status"] == "failed"
    assert launched.result["failure"]["kind"] == "timeout"
    assert "timeout_sec=5" in launched.output
    assert not processes_of(launched.folder)


def test_a_stack_that_cannot_be_imported_is_told_by_its_own_error(tmp_path: Path) -> None:
    """The worker ends at its start, before it could leave a result."""
    (tmp_path / "broken").mkdir()
    words = "libcudart.so.13: cannot open shared object file"
    last = "import atexit; atexit.register(print, 'a library says goodbye')"
    (tmp_path / "broken/torch.py").write_text(f"{last}\nraise ImportError({words!r})")
    settings = (f"+stack.env.PYTHONPATH={tmp_path / 'broken'}", "tracking.offline=true")
    launched = collect(start(tmp_path, *TINY, *settings), tmp_path)
    assert launched.code == 1
    assert launched.result["failure"]["message"].endswith(f"it last printed: ImportError: {words}")
    assert words in " ".join(launched.output.split())


def test_the_launchers_own_death_takes_the_worker_with_it(tmp_path: Path) -> None:
    process = start(tmp_path, *TINY, "model.hparams.fault=hang", "tracking.offline=true", "cpu_processes=2")
    folder = wait_for_event(tmp_path, "epoch_start")
    assert processes_of(folder)
    process.kill()
    process.communicate()
    wait_for(lambda: not processes_of(folder))


def wait_for_event(cwd: Path, key: str, timeout_sec: float = HANGS_SEC) -> Path:
    deadline = time.monotonic() + timeout_sec
    while time.monotonic() < deadline:
        for path in cwd.rglob(run_folder.JOURNAL):
            if events(path.parent, key):
                return path.parent
        time.sleep(0.2)
    raise TimeoutError(f"no {key} within {timeout_sec} s")


def processes_of(folder: Path) -> list[int]:
    """Processes that have the run folder on their command line, as the worker and its ranks do."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if b"trainers.loop.worker" in words and str(folder).encode() in words:
            pids.append(int(path.parent.name))
    return pids


def test_plots_that_fail_cost_no_run_its_result(tmp_path: Path) -> None:
    launched = launch(tmp_path, *TINY, "model.hparams.fault=plots", "tracking.offline=true")
    assert launched.code == 0, launched.output
    assert launched.result["status"] == "finished"
    assert launched.result["evaluations"]
    assert "no plots: RuntimeError: no figure of this shape" in (launched.folder / "worker.log").read_text()
