"""Interrupted runs continue: with real kills, to the same weights, and never as if nothing had happened."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from mlflow import MlflowClient

from tests.commands import Launched, collect, events, launch, start
from tracking import attempts, checkpoints, journal, run_folder
from tracking.mirror import Mirror

EPOCHS, STEPS = 7, 4  # an epoch
# Checkpoints after epochs 2, 4 and 6. Random numbers matter from the second epoch on: it augments.
SMALL = (
    "model.workload=tests.workloads.pausing:WORKLOAD", "model.hparams.epochs=[1]",
    f"model.hparams.augment_epochs={EPOCHS - 1}", f"limit_train_batches={STEPS}", "batch_size=32",
    "log_every_n_steps=2", "checkpoint_every_epochs=2", "target=0.7",
)  # fmt: skip
CPU = ("gpus=0", "tracking.system_metrics_interval_sec=1")
IN_EPOCH_4, IN_EPOCH_6 = {"PAUSE_AT_STEP": "15"}, {"PAUSE_AT_STEP": "23"}
running: list[subprocess.Popen[str]] = []
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # else several runs at once fight for the cores


def paused(cwd: Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
    """A run that has come to the step at which it stands still."""
    process = start(cwd, *arguments, **env, **ONE_THREAD)
    running.append(process)
    epoch = -(-int(env["PAUSE_AT_STEP"]) // STEPS)
    deadline = time.monotonic() + 180
    while epoch not in epochs_under_way(cwd):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    time.sleep(1.5)  # an epoch takes a third of it
    return process


def epochs_under_way(cwd: Path) -> set[int]:
    """The epochs that have started, in the attempts that are under way."""
    newest = [attempts.split(journal.events(path))[-1] for path in cwd.rglob(run_folder.JOURNAL)]
    return {event.values["epoch_num"] for attempt in newest for event in attempt if event.key == "epoch_start"}


def kill_everything(process: subprocess.Popen[str]) -> None:
    """What a power cut does to the launcher, the worker and all its processes."""
    victims = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    assert len(victims) >= 3
    for victim in victims:
        victim.kill()
    process.communicate()


def only_folder(cwd: Path) -> Path:
    (found,) = (path.parent for path in cwd.rglob(run_folder.CONFIG) if (path.parent / run_folder.RUN).exists())
    return found


def mlflow(cwd: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{cwd / 'mlflow.db'}")


class Seen(dict[str, Any]):
    """What was looked at between the attempts, by name."""


def interrupted_twice(cwd: Path, reference: Path) -> tuple[Launched, Launched, Seen]:
    """On one process: told to stop in epoch 4; killed in epoch 6, and its newest checkpoint damaged; then to the end."""
    uninterrupted = launch(reference, *CPU, *SMALL, "tracking.offline=true", **ONE_THREAD)
    first = paused(cwd, *CPU, *SMALL, **IN_EPOCH_4)
    folder = only_folder(cwd)
    seen = Seen(refused=launch(cwd, f"resume={folder}"))
    first.send_signal(signal.SIGTERM)
    seen["stopped"] = collect(first, cwd)
    run_id = Mirror(folder).run_id
    assert run_id
    seen["killed"] = mlflow(cwd).get_run(run_id)
    second = paused(cwd, f"resume={folder.relative_to(cwd)}", **IN_EPOCH_6)
    seen["running"] = mlflow(cwd).get_run(run_id)
    kill_everything(second)
    seen["left"] = [one.path.name for one in checkpoints.found(folder)]
    newest = checkpoints.found(folder)[0].path
    newest.write_bytes(newest.read_bytes()[:-1000])
    return uninterrupted, launch(cwd, f"resume={folder.relative_to(cwd)}", **ONE_THREAD), seen


def interrupted_in_a_sweep(cwd: Path, reference: Path) -> tuple[Launched, Launched, Seen]:
    """On two processes: the only job of a sweep, killed in epoch 6; then the sweep is resumed."""
    uninterrupted = launch(reference, *CPU, *SMALL, "cpu_processes=2", "tracking.offline=true", **ONE_THREAD)
    first = paused(cwd, "-m", *CPU, *SMALL, "cpu_processes=2", **IN_EPOCH_6)
    kill_everything(first)
    return uninterrupted, launch(cwd, f"sweep.resume={only_folder(cwd).parent.name}", **ONE_THREAD), Seen()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, tuple[Launched, Launched, Seen]]]:
    """By number of processes: the run uninterrupted, the same one interrupted and resumed, and what was between."""
    with ThreadPoolExecutor() as pool:
        one, two = (
            pool.submit(act, *(tmp_path_factory.mktemp(name) for name in ("resumed", "reference")))
            for act in (interrupted_twice, interrupted_in_a_sweep)
        )
        try:
            yield {1: one.result(), 2: two.result()}
        finally:
            for process in running:
                process.kill()
                process.communicate()


@pytest.fixture(scope="module")
def twice(pairs: dict[int, tuple[Launched, Launched, Seen]]) -> tuple[Launched, Seen]:
    return pairs[1][1:]


@pytest.mark.parametrize("processes", [1, 2])
def test_it_ends_with_the_same_weights_to_the_last_bit(
    pairs: dict[int, tuple[Launched, Launched, Seen]], processes: int
) -> None:
    uninterrupted, resumed, _ = pairs[processes]
    assert uninterrupted.code == 0, uninterrupted.output
    assert resumed.code == 0, resumed.output
    digests = [(run.folder / "weights.sha256").read_text() for run in (uninterrupted, resumed)]
    assert digests[0] == digests[1]
    results = [run.result for run in (uninterrupted, resumed)]
    found = [[(row["step"], row["metrics"]) for row in result["evaluations"]] for result in results]
    assert len(found[0]) == EPOCHS
    assert found[0] == found[1]
    assert results[0]["metrics"]["test/loss"] == results[1]["metrics"]["test/loss"]
