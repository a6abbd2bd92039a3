"""Runs read from a real MLflow database and from folders: the same, found by any of their names."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import studied
from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer, answering
from tracking.__main__ import main
from tracking.analysis.report import report
from tracking.analysis.results import mlflow_runs
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.analysis.results.mlflow_runs import MlflowRuns
from tracking.analysis.results.runs import none_finished
from tracking.jobs.follow import sync
from tracking.store.server.server_errors import TrackingUnavailable

SWEEP = "20260101-000000-vgg-abcd"
ONE, TWO = "vgg-digits-fp32-1gpu-seed1", "vgg-digits-fp32-2gpu-seed1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """A sweep of three runs, one of them failed, in folders and in a database beside them."""
    root = tmp_path_factory.mktemp("runs")
    shutil.copy(empty_database, root)
    uri = f"sqlite:///{root / 'mlflow.db'}"
    sweep = studied.make_sweep(root, SWEEP, uri, 3)
    studied.make_run(sweep, studied.config(gpus=1), uri, fingerprint={"used": []})
    studied.make_run(sweep, studied.config(gpus=2), uri, step_sec=0.05)
    studied.make_run(sweep, studied.config(gpus=4), uri, failure="oom")
    outcomes = sync.sync(sorted(root.glob("*")) and [sweep, *sorted(path.parent for path in sweep.glob("*/run.json"))])
    assert [outcome.state for outcome in outcomes] == ["complete"] * 4
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[MlflowServer]:
    with MlflowServer(root) as server:
        yield server


@pytest.fixture
def served(server: MlflowServer, mlflow_environment: None) -> Iterator[FaultyProxy]:
    """The real server behind a proxy that can vanish."""
    with FaultyProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def stores(root: Path, mlflow_environment: None) -> tuple[MlflowRuns, FolderRuns]:
    return MlflowRuns(f"sqlite:///{root / 'mlflow.db'}"), FolderRuns([root])


def test_both_readers_give_the_same_runs(stores: tuple[MlflowRuns, FolderRuns]) -> None:
    (ours, folders), keys = stores, ["train/loss", "eval/accuracy", "absent", "system/gpu_0_utilization_percentage"]
    for left, right in zip(ours.find([SWEEP]), folders.find([SWEEP]), strict=True):
        tags = {key: value for key, value in left.tags.items() if not key.startswith("mlflow.") or key in right.tags}
        assert dataclasses.replace(left, tags=tags) == right
        assert ours.history(left, keys) == folders.history(right, keys)
        assert ours.text(left, "config.yaml") == folders.text(right, "config.yaml")


def test_newest_values_history_and_state_are_those_of_the_run(stores: tuple[MlflowRuns, FolderRuns]) -> None:
    for store in stores:
        first, second, failed = store.find([SWEEP])
        assert first.metrics["time/to_accuracy_sec"] == pytest.approx(3 * (8 * 0.1 + 0.5))
        assert second.metrics["throughput/samples_per_sec"] == pytest.approx(64 / 0.05)
        assert [step for step, _, _ in store.history(first, ["eval/accuracy"])["eval/accuracy"]] == [8, 16, 24]
        assert (failed.finished, failed.failure, failed.status) == (False, "oom", "FAILED")
        assert (first.finished, first.failure, first.resumed) == (True, None, False)
        assert store.text(first, "fingerprint.json")
        with pytest.raises(FileNotFoundError, match=r"has no file fingerprint\.json"):
            store.text(second, "fingerprint.json")


def test_a_selector_is_a_sweep_an_experiment_an_id_a_name_or_a_folder(
    root: Path, stores: tuple[MlflowRuns, FolderRuns]
) -> None:
    for store in stores:
        everything = [run.id for run in store.find([SWEEP])]
        first = store.find([SWEEP])[0]
        assert len(everything) == 3  # without the parent run
        for selector in ("studies", str(root / SWEEP)):
            assert [run.id for run in store.find([selector])] == everything
        for selector in (first.id, first.name, str(root / SWEEP / first.name)):
            assert [run.id for run in store.find([selector])] == [first.id]
        assert [run.id for run in store.find([first.id, SWEEP, first.name])] == everything  # each once


def test_a_run_is_found_by_the_name_of_its_folder_in_the_runs_dir(root: Path, mlflow_environment: None) -> None:
    """As its table names it. In MLflow the run has a name without the folder's time."""
    uri = f"sqlite:///{root / 'mlflow.db'}"
    folder = root / SWEEP / ONE
    renamed = folder.rename(folder.with_name(f"20260101-000001-{ONE}"))
    try:
        for store in (MlflowRuns(uri, root / SWEEP), FolderRuns([root])):
            assert [run.name for run in store.find([renamed.name])] == [ONE]
    finally:
        renamed.rename(folder)


def test_what_is_unknown_is_said_with_what_there_is(stores: tuple[MlflowRuns, FolderRuns]) -> None:
    for store in stores:
        for selector in ("20250101-nothing", "it's", "both\"'"):
            with pytest.raises(ValueError, match=rf"no sweep, experiment or run .*{SWEEP}.* experiments .*studies"):
                store.find([selector])


def test_a_folder_of_runs_is_told_how_to_name_them(root: Path, stores: tuple[MlflowRuns, FolderRuns]) -> None:
    folder = root.parent / "other"
    folder.mkdir()
    with pytest.raises(ValueError, match=rf"For a folder, name its runs, as in {folder}/\*"):
        stores[0].find([str(folder)])


def test_a_sweep_is_found_by_the_name_and_the_id_of_its_parent_run(stores: tuple[MlflowRuns, FolderRuns]) -> None:
    store = stores[0]
    assert len(store.find([f"sweep {SWEEP}"])) == 3
    parent = next(run for run in store._search(list(store._experiments), "params.num_jobs = '3'", lambda _: None))
    assert len(store.find([parent.id])) == 3


def test_runs_of_which_none_finished_are_said_with_their_failures(stores: tuple[MlflowRuns, FolderRuns]) -> None:
    runs_found = stores[1].find([SWEEP])
    assert none_finished(runs_found, [SWEEP]) == ""
    assert f"{SWEEP}: no run finished: oom (1). Next: see why" in none_finished(runs_found[2:], [SWEEP])
    with pytest.raises(ValueError, match=r"no run finished: oom \(1\)"):
        report.make(stores[1], [SWEEP], runs_found[2:])


def test_an_experiment_without_runs_is_told_from_an_unknown_one(root: Path, mlflow_environment: None) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{root / 'mlflow.db'}"
    MlflowClient(uri).create_experiment("planned")
    with pytest.raises(ValueError, match=r"planned: this experiment .* has no runs yet. Next: .*=planned"):
        MlflowRuns(uri).find(["planned"])


def test_runs_that_are_still_running_are_to_be_waited_for(stores: tuple[MlflowRuns, FolderRuns]) -> None:
    run = dataclasses.replace(stores[1].find([SWEEP])[0], status="RUNNING")
    assert "no run finished: running (1). Wait for the running ones" in none_finished([run], [SWEEP])


def test_pages_are_put_together(stores: tuple[MlflowRuns, FolderRuns], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "PAGE", 2)
    progress: list[int] = []
    assert len(stores[0].find([SWEEP], progress.append)) == 3
    assert progress == [2, 4]  # the parent run is read, too


@pytest.mark.parametrize(
    ("command", "step", "code"),
    [
        (["report", SWEEP, "--out", "none"], "tracking.analysis.report.report.none_finished", 1),
        (["diff", SWEEP], "tracking.analysis.compare.diff.differences", 2),
        (
            ["gate", "--baseline", ONE, "--candidate", TWO, "--max-slowdown", "3%"],
            "tracking.analysis.compare.gate.confounds",
            2,
        ),
    ],
    ids=["report", "diff", "gate"],
)
def test_a_server_that_goes_half_way_through_a_command_is_told_with_what_to_do(
    served: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: list[str], step: str, code: int,
) -> None:  # fmt: skip
    """It answers until the command has found its runs, and takes no connection from then on."""
    module, _, name = step.rpartition(".")
    original = getattr(importlib.import_module(module), name)

    def gone(*arguments: Any) -> Any:
        assert served.times  # it was asked before
        served.fault = "refuse"
        return original(*arguments)

    monkeypatch.setattr(step, gone)
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--uri", served.uri]) == code
    said = capsys.readouterr().err
    assert f"{served.uri}: " in said
    assert "try again, or give --from-folders" in said
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_killed_half_way_is_named(server: MlflowServer, mlflow_environment: None) -> None:
    store = MlflowRuns(server.uri.replace("http://", "http://someone:secret@"))
    (run,) = store.find([f"{SWEEP}/{ONE}"])
    server.kill()
    for action in (lambda: store.history(run, ["train/loss"]), lambda: store.text(run, "config.yaml")):
        with pytest.raises(TrackingUnavailable, match=rf"^http://127.0.0.1:{server.port}: (?!.*secret)"):
            action()
    with answering(500) as (uri, _), pytest.raises(TrackingUnavailable, match="500"):
        MlflowRuns(uri).find([SWEEP])
