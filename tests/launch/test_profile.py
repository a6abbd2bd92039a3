"""profile=true traces steps when the clock has stopped: a run's figures, and its result, do not depend on it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from conf.schema import RunConfig
from tests.support.commands import TINY, Launched, launch
from tracking.__main__ import main
from tracking.measure import kernels
from tracking.measure.kernels import merged_trace
from tracking.measure.training import clock
from tracking.record import documents, journal, run_folder
from tracking.request.command_line.arguments import hydra_argument

SHORT = (*TINY, "gpus=0", "max_epochs=1", "limit_train_batches=4", "tracking.system_metrics_interval_sec=1")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# What the supervisor adds to a run that has ended. A run of four steps has the machine's figures only if a sample of
# every second fell into them.
OF_THE_SUPERVISOR = {"system", "goodput", "bottleneck", "traffic", "utilization", "ceilings", "roofline", "energy"}


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("profile=true", "profile.steps=20"),
        ("profile=false,true", "profile.steps=0,20"),
        ("+profile=true", "profile.steps=20"),
        ("profile=5", "profile.steps=5"),
        ("profile.steps=5", "profile.steps=5"),
        ("stack.name=profile=true", "stack.name=profile=true"),
    ],
)
def test_true_is_a_number_of_steps(given: str, spelled: str) -> None:
    assert hydra_argument(given) == spelled


def test_what_is_traced_does_not_make_another_run_of_it() -> None:
    config = RunConfig(seed=2, gpus=0)
    plain = config.config_hash()
    config.profile.steps = 20
    assert config.config_hash() == plain
    assert config.profiled()
    config.profile.seed = 1
    assert not config.profiled()
    config.profile.seed = 2
    assert config.profiled()
    config.warm_up = True
    assert not config.profiled()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    cwd = tmp_path_factory.mktemp("sweep")
    done = launch(cwd, *SHORT, "-m", "seed=1,2", "cpu_processes=2", "profile=3", "profile.seed=1", **ONE_THREAD)
    assert done.code == 0, done.output
    return done


def of_seed(sweep: Launched, seed: int) -> Path:
    return next(folder for folder in sweep.folders if run_folder.read_config(folder).seed == seed)


@pytest.mark.slow
def test_of_a_sweep_the_runs_of_one_seed_are_traced_on_every_rank(sweep: Launched) -> None:
    folder, other = of_seed(sweep, 1), of_seed(sweep, 2)
    profile = kernels.read((folder / kernels.PROFILE).read_text())
    assert profile.num_steps == 3
    assert [row["rank"] for row in profile.ranks] == [0, 1]
    assert sorted(profile.summaries) == sorted({"0", str(profile.slowest)})
    assert all((folder / name).stat().st_size for name in profile.traces)
    exchanged = [row for row in profile.first["kernels"] if row["class"] == "collective"]
    assert exchanged, "the gradients of two processes"
    assert not list(other.glob("profile*"))


@pytest.mark.slow
def test_one_trace_has_the_steps_of_every_rank_on_one_time_axis(sweep: Launched) -> None:
    folder = of_seed(sweep, 1)
    assert merged_trace.NAME in kernels.read((folder / kernels.PROFILE).read_text()).traces
    events = json.loads(gzip.decompress((folder / merged_trace.NAME).read_bytes()))["traceEvents"]
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert len({event["pid"] for event in events}) >= 2
    steps: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event["name"].startswith("ProfilerStep#") and event.get("cat") == "user_annotation":
            rank = named[event["pid"]].split(":")[0]
            steps.setdefault(rank, []).append((event["ts"], event["ts"] + event["dur"]))
    assert {rank: len(spans) for rank, spans in steps.items()} == {"rank 0": 3, "rank 1": 3}
    # Ranks wait for each other in the exchange of gradients, so their steps lie side by side.
    begins, ends = ({rank: pick(steps[rank]) for rank in steps} for pick in (min, max))
    assert max(begin for begin, _ in begins.values()) < min(end for _, end in ends.values())
    assert not list(folder.glob(".profile*"))


@pytest.mark.slow
def test_the_clock_has_stopped(sweep: Launched) -> None:
    """Whatever is measured is in the journal before the first step is traced, and no figure changes by it."""
    folder = of_seed(sweep, 1)
    records = [record for record, _ in journal.read(folder / run_folder.JOURNAL)]
    keys = [record.key for record in records]
    began = keys.index("profile_start")
    assert keys.index("run_stop") < began < keys.index("profile_stop")
    late = {key for record in records[began:] if record.kind == "metrics" for key in record.values}
    assert {key.split("/")[0] for key in late} <= OF_THE_SUPERVISOR
    assert {record.key for record in records[began:] if record.kind == "event"} == {"profile_start", "profile_stop"}
    metrics = documents.read_json(folder / run_folder.RESULT)["metrics"]
    events = [record for record in records[: keys.index("run_stop") + 1] if record.kind == "event"]
    times = clock.summarize(events, run_folder.read_config(folder).targets())
    assert times.items() <= metrics.items()
    assert metrics.keys() == documents.read_json(of_seed(sweep, 2) / run_folder.RESULT)["metrics"].keys()


@pytest.mark.slow
def test_its_files_are_artifacts_and_a_run_without_them_is_no_side_of_a_diff(
    sweep: Launched, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, other = of_seed(sweep, 1), of_seed(sweep, 2)
    run_id = documents.read_json(folder / run_folder.MIRROR)["run_id"]
    stored = {file.path for file in MlflowClient(f"sqlite:///{sweep.cwd / 'mlflow.db'}").list_artifacts(run_id)}
    assert {kernels.PROFILE, kernels.KERNELS, kernels.trace_name(0)} <= stored
    store = ["--from-folders", "--runs-dir", str(sweep.cwd / "runs")]
    assert main(["diff", str(folder), str(other), "--kernels", *store]) == 2
    assert "train it with profile=true" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words", "logged"),
    [
        ("sigkill", "", "terminated with signal SIGKILL"),
        ("error", "no profile: RuntimeError: something of the", "about to meet error"),
    ],
)
def test_a_profile_that_fails_costs_the_run_nothing(tmp_path: Path, fault: str, words: str, logged: str) -> None:
    """The workload breaks at its fifth step, and the run has four."""
    done = launch(tmp_path, *SHORT, f"model.hparams.fault={fault}", "profile=true", **ONE_THREAD)
    assert done.code == 0, done.output
    result: dict[str, Any] = done.result
    assert (result["status"], result["failure"]) == ("finished", None)
    assert result["metrics"]["epochs/trained"] == 1
    assert words in done.output
    assert not [path for pattern in ("profile*", ".profile*") for path in done.folder.glob(pattern)]
    assert logged in (done.folder / run_folder.WORKER_LOG).read_text(), "it came to the profile"
    assert json.loads((done.folder / run_folder.MIRROR).read_text())["status"] == "FINISHED"
