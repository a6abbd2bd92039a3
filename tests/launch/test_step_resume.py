"""Killed runs go on after the step of their newest checkpoint, with real kills, and end with the same weights."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.commands import HANGS_SEC, Launched, begin, collect, events, launch
from tests.support.folders import wait_for
from tracking.record import checkpoints, journal, run_folder

pytestmark = pytest.mark.slow

STEPS = 4  # an epoch; random numbers matter from the second one on, which augments
SMALL = (
    "gpus=0", "tracking.system_metrics_interval_sec=0", "tracking.offline=true",
    "model.workload=tests.workloads.pausing:WORKLOAD", "model.hparams.epochs=[1]", "model.hparams.augment_epochs=5",
    f"limit_train_batches={STEPS}", "batch_size=32", "log_every_n_steps=2",
    "eval_every_steps=2", "target=0.99",
)  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
PAUSED, NEWEST = 20, (4, 18)  # It stands still before this step; what was complete then.
running: list[Any] = []


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.exhaustive), 2])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Launched, ...]]:
    """A run that was not interrupted, and one whose processes were all killed and that was resumed."""
    options = (*SMALL, "checkpoint_every_steps=3", f"cpu_processes={request.param}")
    whole = launch(tmp_path_factory.mktemp("whole"), *options, **ONE_THREAD)
    cwd = tmp_path_factory.mktemp("killed")
    killed = begin(cwd, *options, PAUSE_AT_STEP=str(PAUSED), **ONE_THREAD)
    running.append(killed)
    wait_for(lambda: newest(cwd) == NEWEST or killed.poll() is not None, HANGS_SEC)
    time.sleep(0.2)
    for process in [*psutil.Process(killed.pid).children(recursive=True), psutil.Process(killed.pid)]:
        process.kill()
    killed.communicate()
    (folder,) = (path.parent for path in cwd.rglob(run_folder.CONFIG))
    yield whole, launch(cwd, f"resume={folder.relative_to(cwd)}", **ONE_THREAD)
    for process in running:
        process.kill()
        process.wait()


def last_trained(cwd: Path) -> int:
    """The step that the first process of a slow run has come to."""
    path = cwd / "steps.0"
    return int((path.read_text().split() or ["0"])[-1]) if path.exists() else 0


def newest(cwd: Path) -> tuple[int, int] | None:
    """How far the newest checkpoint is, once it is whole."""
    for path in cwd.rglob(run_folder.CONFIG):
        checkpoint = checkpoints.newest(path.parent)
        return checkpoint.place if checkpoint else None
    return None


def test_it_ends_with_the_same_weights_to_the_last_bit(pair: tuple[Launched, Launched]) -> None:
    whole, resumed = pair
    assert whole.code == 0, whole.output
    assert resumed.code == 0, resumed.output
    assert "continues after step 18, in epoch 5" in resumed.output
    digests = [(run.folder / "weights.sha256").read_text() for run in pair]
    assert digests[0] == digests[1]
    names = ("step", "epoch_num", "samples_count", "metrics")
    curves = [[[row[name] for name in names] for row in run.result["evaluations"]] for run in pair]
    assert curves[0] == curves[1]
    assert len(curves[0]) == 12


def test_only_the_steps_since_the_checkpoint_were_lost(pair: tuple[Launched, Launched]) -> None:
    _, resumed = pair
    (resume,) = events(resumed.folder, "resume")
    assert (resume.values["epoch_num"], resume.values["step"], resume.values["from_step"]) == (4, 18, 18)
    starts = [event for event in journal.events(resumed.folder / run_folder.JOURNAL) if event.key == "epoch_start"]
    assert [event.values["epoch_num"] for event in starts] == [1, 2, 3, 4, 5, 5, 6]
    metrics = resumed.result["metrics"]
    assert metrics["epochs/trained"] == 6
    assert metrics["resume/count"] == 1
    assert not (resumed.folder / run_folder.CHECKPOINTS).exists()


def test_what_it_was_is_told(pair: tuple[Launched, Launched]) -> None:
    _, resumed = pair
    assert "step 18, in epoch 5 (" in " ".join(resumed.output.split())
    records = [record for record, _ in journal.read(resumed.folder / run_folder.JOURNAL)]
    keys = ["checkpoints" if "checkpoints" in record.values else record.key for record in records]
    assert keys.index("checkpoints") < keys.index("run_start"), "memory is allocated before the clock"
    said = json.dumps([record.values for record in records])
    assert "resumed after step 18, in epoch 5, with step 19: no time to accuracy" in said


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_a_last_checkpoint_that_fails_is_counted_and_named(tmp_path: Path, processes: int) -> None:
    """It is being written while the training stops, and its end belongs to the result."""
    options = [option for option in SMALL if not option.startswith("model.workload")]
    run = launch(
        tmp_path, *options, f"cpu_processes={processes}", "model.workload=tests.workloads.full_disk:WORKLOAD",
        "checkpoint_every_steps=23", **ONE_THREAD,
    )  # fmt: skip
    assert run.code == 0, run.output
    (saved,) = events(run.folder, "checkpoint_saved")
    assert "No space left on device" in saved.values["error"]
    assert run.result["metrics"]["checkpoint/num_failed"] == 1
    assert "no checkpoint after step 23" in run.output


@pytest.mark.exhaustive  # tests/trainers/loop/saving/test_background.py has two such ranks
def test_a_process_that_cannot_save_holds_no_other_up_and_ends_no_run(tmp_path: Path) -> None:
    options = [option for option in SMALL if not option.startswith("model.workload")]
    run = launch(
        tmp_path, *options, "cpu_processes=2", "model.workload=tests.workloads.half_saved:WORKLOAD",
        "checkpoint_every_steps=11", "checkpoint_every_epochs=4", **ONE_THREAD,
    )  # fmt: skip
    assert run.code == 0, run.output
    said = [event.values for event in events(run.folder, "checkpoint_saved") + events(run.folder, "checkpoint_stop")]
    errors = [values["error"] for values in said if "error" in values]
    assert errors == ["rank 1: RuntimeError: an odd buffer"] * 3, "after the steps 11 and 22, and after epoch 4"
    assert run.result["metrics"]["checkpoint/num_failed"] == 3


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_one_that_is_told_to_stop_saves_and_loses_no_step(tmp_path: Path, processes: int) -> None:
    options = (*SMALL, "checkpoint_every_steps=23", f"cpu_processes={processes}")
    process = begin(tmp_path, *options, STEP_SEC="0.3", **ONE_THREAD)
    running.append(process)
    wait_for(lambda: last_trained(tmp_path) >= 6 or process.poll() is not None, HANGS_SEC)
    process.send_signal(signal.SIGTERM)
    stopped = collect(process, tmp_path)
    assert stopped.code == 1, stopped.output
    assert stopped.result["failure"]["kind"] == f"signal:{signal.SIGTERM}"
    assert "continue it with" in stopped.output
    place = newest(tmp_path)
    assert place is not None
    step = place[1]
    assert step == last_trained(tmp_path) < 23
    resumed = launch(tmp_path, f"resume={stopped.folder.relative_to(tmp_path)}", STEP_SEC="0", **ONE_THREAD)
    assert resumed.code == 0, resumed.output
    assert f"continues after step {step}" in resumed.output
    for rank in range(processes):
        trained = list(dict.fromkeys(map(int, (tmp_path / f"steps.{rank}").read_text().split())))
        assert trained == list(range(1, 25)), "each step once"
