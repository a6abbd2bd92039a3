"""Interrupted runs continue: with real kills, to the same weights, and never as if nothing had happened."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from mlflow import MlflowClient

from tests.support.commands import HANGS_SEC, Launched, begin, collect, events, launch
from tests.support.folders import wait_for
from tests.support.forked import Forked
from tracking.record import attempts, checkpoints, documents, journal, run_folder
from tracking.store.mirror.mirror import Mirror

pytestmark = pytest.mark.slow

EPOCHS, STEPS = 7, 4  # an epoch
# Checkpoints after epochs 2, 4 and 6. Random numbers matter from the second epoch on: it augments.
SMALL = (
    "model.workload=tests.workloads.pausing:WORKLOAD", "model.hparams.epochs=[1]",
    f"model.hparams.augment_epochs={EPOCHS - 1}", f"limit_train_batches={STEPS}", "batch_size=32",
    "log_every_n_steps=2", "checkpoint_every_epochs=2", "target=0.7",
)  # fmt: skip
CPU = ("gpus=0", "tracking.system_metrics_interval_sec=1")
IN_EPOCH_4, IN_EPOCH_6 = {"PAUSE_AT_STEP": "15"}, {"PAUSE_AT_STEP": "23"}
Pair = tuple[Launched, Launched, dict[str, Any]]  # uninterrupted, resumed, and what was looked at in between
running: list[Forked | subprocess.Popen[str]] = []
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # else several runs at once fight for the cores


def paused(cwd: Path, *arguments: str, **env: str) -> Forked | subprocess.Popen[str]:
    """A run that has come to the step at which it stands still."""
    process = begin(cwd, *arguments, **env, **ONE_THREAD)
    running.append(process)
    epoch = -(-int(env["PAUSE_AT_STEP"]) // STEPS)
    deadline = time.monotonic() + HANGS_SEC
    while epoch not in epochs_under_way(cwd):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    time.sleep(0.5)  # to come to it; where it has not, an epoch is lost all the same
    return process


def epochs_under_way(cwd: Path) -> set[int]:
    """The epochs that have started, in the attempts that are under way."""
    newest = [attempts.split(journal.events(path))[-1] for path in cwd.rglob(run_folder.JOURNAL)]
    return {event.values["epoch_num"] for attempt in newest for event in attempt if event.key == "epoch_start"}


def kill_everything(process: Forked | subprocess.Popen[str]) -> None:
    """Kill the launcher, the worker and all its processes at once, as a power cut would."""
    victims = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    assert len(victims) >= 3
    for victim in victims:
        victim.kill()
    process.communicate()


def only_folder(cwd: Path) -> Path:
    (folder,) = (path.parent for path in cwd.rglob(run_folder.CONFIG) if (path.parent / run_folder.RUN).exists())
    return folder


def mlflow(cwd: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{cwd / 'mlflow.db'}")


def interrupted_twice(cwd: Path, reference: Path) -> Pair:
    """On one process: told to stop in epoch 4; killed in epoch 6, and its newest checkpoint damaged; then to the end.

    The uninterrupted run is one whose checkpoints, of 3 MB, find no room; its other files are smaller than that.
    """
    alone = begin(reference, *CPU, *SMALL, "tracking.offline=true", max_file_bytes=2**20, **ONE_THREAD)
    running.append(alone)
    uninterrupted = collect(alone, reference)
    first = paused(cwd, *CPU, *SMALL, **IN_EPOCH_4)
    folder = only_folder(cwd)
    seen: dict[str, Any] = {"refused": launch(cwd, f"resume={folder}")}
    first.send_signal(signal.SIGTERM)
    seen["stopped"] = collect(first, cwd)
    run_id = Mirror(folder).run_id
    assert run_id
    seen["killed"] = mlflow(cwd).get_run(run_id)
    second = paused(cwd, f"resume={folder.relative_to(cwd)}", **IN_EPOCH_6)
    wait_for(lambda: mlflow(cwd).get_run(run_id).info.status == "RUNNING")  # the mirror may lag behind the worker
    seen["running"] = mlflow(cwd).get_run(run_id)
    kill_everything(second)
    seen["left"] = [checkpoint.path.name for checkpoint in checkpoints.in_folder(folder)]
    newest = checkpoints.in_folder(folder)[0].path
    newest.write_bytes(newest.read_bytes()[:-1000])
    return uninterrupted, launch(cwd, f"resume={folder.relative_to(cwd)}", **ONE_THREAD), seen


def interrupted_in_a_sweep(cwd: Path, reference: Path) -> Pair:
    """On two processes: the only job of a sweep, killed in epoch 6; then the sweep is resumed, on another PyTorch."""
    uninterrupted = launch(reference, *CPU, *SMALL, "cpu_processes=2", "tracking.offline=true", **ONE_THREAD)
    first = paused(cwd, "-m", *CPU, *SMALL, "cpu_processes=2", **IN_EPOCH_6)
    kill_everything(first)
    folder = only_folder(cwd)
    fingerprint = documents.read_json(folder / run_folder.FINGERPRINT)
    fingerprint["software"]["torch"] = "2.0"
    documents.write_json(folder / run_folder.FINGERPRINT, fingerprint)
    return uninterrupted, launch(cwd, f"sweep.resume={folder.parent.name}", **ONE_THREAD), {}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Pair]]:
    """By number of processes: the run uninterrupted, the same one interrupted and resumed, and what was between."""
    with ThreadPoolExecutor() as pool:
        first, second = (
            pool.submit(act, *(tmp_path_factory.mktemp(name) for name in ("resumed", "reference")))
            for act in (interrupted_twice, interrupted_in_a_sweep)
        )
        try:
            yield {1: first.result(), 2: second.result()}
        finally:
            for process in running:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def twice(pairs: dict[int, Pair]) -> Launched:
    return pairs[1][1]


@pytest.mark.parametrize("processes", [1, 2])
def test_it_ends_with_the_same_weights_to_the_last_bit(pairs: dict[int, Pair], processes: int) -> None:
    uninterrupted, resumed, _ = pairs[processes]
    assert uninterrupted.code == 0, uninterrupted.output
    assert resumed.code == 0, resumed.output
    digests = [(run.folder / "weights.sha256").read_text() for run in (uninterrupted, resumed)]
    assert digests[0] == digests[1]
    results = [run.result for run in (uninterrupted, resumed)]
    curves = [[(row["step"], row["metrics"]) for row in result["evaluations"]] for result in results]
    assert len(curves[0]) == EPOCHS
    assert curves[0] == curves[1]
    assert results[0]["metrics"]["test/loss"] == results[1]["metrics"]["test/loss"]


@pytest.mark.parametrize("processes", [1, 2])
def test_its_times_are_under_names_of_their_own_and_add_up(pairs: dict[int, Pair], processes: int) -> None:
    uninterrupted, resumed, _ = pairs[processes]
    assert "time/to_accuracy_sec" in uninterrupted.result["metrics"]
    metrics = resumed.result["metrics"]
    assert not [key for key in metrics if key.startswith("time/to_accuracy") or key.endswith("to_accuracy_usd")]
    assert metrics["resume/count"] == {1: 2, 2: 1}[processes]
    assert metrics["target_reached"] == 1
    assert metrics["epochs/to_accuracy"] == EPOCHS
    counted = metrics["time/resumed_to_accuracy_train_sec"]
    parts = counted + metrics["time/eval_sec"] + metrics["time/checkpoint_sec"]
    parts += metrics["resume/lost_sec"] + metrics["resume/down_sec"]
    assert metrics["time/resumed_to_accuracy_sec"] == pytest.approx(parts, abs=0.05)
    assert 0 < metrics["time/train_sec"] <= counted < parts
    assert 0 < metrics["resume/down_sec"] < parts
    assert metrics["resume/lost_sec"] > 0
    began = events(resumed.folder, "run_start")[0].time_ms
    reached = events(resumed.folder, "eval_accuracy")[-1].time_ms
    assert metrics["time/resumed_to_accuracy_sec"] == pytest.approx((reached - began) / 1e3, abs=0.1)


@pytest.mark.parametrize("processes", [1, 2])
def test_every_step_and_sample_counts_once(pairs: dict[int, Pair], processes: int) -> None:
    folder = pairs[processes][1].folder
    history = attempts.history(journal.events(folder / run_folder.JOURNAL))
    steps = [event.values["step"] for event in history if event.key == "throughput_window"]
    assert steps == sorted(set(steps))
    assert [step for step in steps if step % 2 == 0] == list(range(2, EPOCHS * STEPS + 1, 2))
    surviving_attempts = 2  # On one process, the attempt of the second interruption was lost as a whole.
    # The first step of each is a window of its own.
    assert len([step for step in steps if step % 2]) == surviving_attempts
    samples = [event.values["samples"] for event in history if event.key == "epoch_stop"]
    assert samples == [32 * processes * STEPS] * EPOCHS
    written = [event.values["step"] for event in events(folder, "throughput_window")]
    assert len(written) > len(steps), "nothing was lost: then nothing was shown"
    # All windows but the first two of each attempt, in which data is read and caches fill.
    count = pairs[processes][1].result["metrics"]["resume/count"]
    assert pairs[processes][1].result["windows"]["num_windows"] == len(steps) - 2 * surviving_attempts, count


def test_on_the_server_it_is_one_run_that_ended_well_and_says_that_it_was_interrupted(twice: Launched) -> None:
    client = mlflow(twice.cwd)
    experiment = Mirror(twice.folder).experiment_id or ""
    (run,) = client.search_runs([experiment])
    assert not client.search_runs([experiment], "tags.resumed IS NULL")
    assert run.info.status == "FINISHED"
    assert run.data.tags["resumed"] == "2"
    assert run.data.tags["resumed.after"] == "signal:15,signal:9"
    assert "failure" not in run.data.tags
    assert "resumed.changed" not in run.data.tags, "on the same machine"
    assert "resumed after epoch 2" in run.data.tags["mlflow.note.content"]
    assert {key: run.data.metrics[key] for key in twice.result["metrics"]} == pytest.approx(twice.result["metrics"])
    assert "time/to_accuracy_sec" not in run.data.metrics
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"worker.1.log", "worker.2.log", "worker.log", "result.1.json", "fingerprint.1.json"} <= names
    assert not [name for name in names if "checkpoint" in name or name.endswith(".ckpt")]


def test_on_the_server_superseded_rows_are_told_by_step_and_time(twice: Launched) -> None:
    """As docs/resuming.md says: what was logged before a `resume/count`, at a step above its own."""
    client, run_id = mlflow(twice.cwd), Mirror(twice.folder).run_id
    assert run_id
    resumes = client.get_metric_history(run_id, "resume/count")
    assert [(row.value, row.step) for row in resumes] == [(1, 2 * STEPS), (2, 2 * STEPS), (2, EPOCHS * STEPS)]
    for key, every in (("train/loss", 2), ("eval/loss", STEPS)):
        rows = client.get_metric_history(run_id, key)
        left = [
            row.step
            for row in rows
            if not any(row.timestamp < resume.timestamp and row.step > resume.step for resume in resumes)
        ]
        # The first step of an attempt is a window of its own, and odd here.
        assert sorted(step for step in left if step % 2 == 0) == list(range(every, EPOCHS * STEPS + 1, every))
        assert len(rows) > len(left)


def test_between_the_attempts_the_server_shows_how_it_stands(pairs: dict[int, Pair]) -> None:
    seen = pairs[1][2]
    assert seen["stopped"].code == 1
    assert "continue it with: python launch.py resume=runs/" in seen["stopped"].output
    assert seen["killed"].info.status == "KILLED"
    assert seen["killed"].data.tags["failure"] == "signal:15"
    assert seen["running"].info.status == "RUNNING"
    assert "failure" not in seen["running"].data.tags
    assert seen["running"].info.run_id == seen["killed"].info.run_id


def test_the_newest_checkpoints_are_kept_and_a_damaged_one_is_passed_over(pairs: dict[int, Pair]) -> None:
    _, resumed, seen = pairs[1]
    assert seen["left"] == ["epoch4.ckpt", "epoch2.ckpt"]
    assert "continues after epoch 2 (epoch4.ckpt: damaged)" in resumed.output
    assert [row["epoch_num"] for row in resumed.result["resumes"]] == [2, 2]
    assert not (resumed.folder / run_folder.CHECKPOINTS).exists(), "a finished run needs none"


def test_nothing_of_the_earlier_attempts_is_lost(twice: Launched) -> None:
    for number, kind in ((1, "signal:15"), (2, "signal:9")):
        before = json.loads((twice.folder / f"result.{number}.json").read_text())
        assert before["failure"]["kind"] == kind
    for name in ("worker.1.log", "worker.2.log", "fingerprint.1.json", "fingerprint.2.json", "requirements.1.txt"):
        assert (twice.folder / name).stat().st_size > 0


def test_samples_of_the_system_go_on_where_they_were(twice: Launched) -> None:
    rows = [row for row, _ in journal.read(twice.folder / run_folder.JOURNAL) if row.kind == "metrics"]
    steps = [row.step for row in rows if any(key.startswith("system/") for key in row.values)]
    assert steps == list(range(len(steps)))


def test_the_summary_of_a_sweep_tells_it_apart(pairs: dict[int, Pair]) -> None:
    resumed = pairs[2][1]
    assert "1 of 1 job to run" in resumed.output
    assert "continues after epoch 4" in resumed.output
    assert "finished, resumed" in (resumed.folder.parent / "summary.md").read_text()
    client = mlflow(resumed.cwd)
    runs = client.search_runs([Mirror(resumed.folder).experiment_id or ""])
    assert sorted(run.info.status for run in runs) == ["FINISHED", "FINISHED"]


def test_another_environment_is_recorded(pairs: dict[int, Pair]) -> None:
    resumed = pairs[2][1]
    assert resumed.result["changed"] == ["env.torch"]
    run_id = Mirror(resumed.folder).run_id
    assert run_id
    assert mlflow(resumed.cwd).get_run(run_id).data.tags["resumed.changed"] == "env.torch"
    assert documents.read_json(resumed.folder / "fingerprint.1.json")["software"]["torch"] == "2.0"


def test_a_run_under_way_and_one_that_has_finished_are_refused(pairs: dict[int, Pair]) -> None:
    _, resumed, seen = pairs[1]
    assert seen["refused"].code == 2
    assert "runs it. Next: stop it, or wait for its end" in seen["refused"].output
    again = launch(resumed.cwd, f"resume={resumed.folder}")
    assert again.code == 2
    assert "has finished" in again.output


def test_a_disk_without_room_costs_the_checkpoints_and_not_the_run(pairs: dict[int, Pair]) -> None:
    full = pairs[1][0]
    assert full.code == 0, full.output
    for epoch in (2, 4, 6):
        assert f"no checkpoint after epoch {epoch}: [Errno 27] File too large" in full.output
    assert full.result["metrics"]["checkpoint/num_failed"] == 3
    assert not (full.folder / run_folder.CHECKPOINTS).exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_on_a_gpu_compiled_and_with_graphs_it_ends_alike(tmp_path: Path, precision: str) -> None:
    """Not to the last bit: a GPU adds up in another order each time. Compared with what two runs differ by anyway."""
    options = (*SMALL, "gpus=1", f"precision={precision}", "tracking.offline=true")
    first, another, cwd = (tmp_path / name for name in ("one", "another", "resumed"))
    for folder in (first, another, cwd):
        folder.mkdir()
    with ThreadPoolExecutor() as pool:
        references = [pool.submit(launch, folder, *options) for folder in (first, another)]
        kill_everything(paused(cwd, *options, **IN_EPOCH_6))
        resumed = launch(cwd, f"resume={only_folder(cwd)}")
    assert resumed.code == 0, resumed.output
    assert resumed.result["metrics"]["resume/count"] == 1
    results = [*(reference.result().result for reference in references), resumed.result]
    assert ("energy/joules" in results[0]["metrics"]) == ("energy/joules" in resumed.result["metrics"])
    assert "energy/to_accuracy_joules" not in resumed.result["metrics"]
    losses = [[row["metrics"]["loss"] for row in result["evaluations"]] for result in results]
    assert len(losses[2]) == EPOCHS
    apart = max(abs(a - b) / a for a, b in zip(losses[0], losses[1], strict=True))
    assert losses[2] == pytest.approx(losses[0], rel=max(0.02, 4 * apart))
