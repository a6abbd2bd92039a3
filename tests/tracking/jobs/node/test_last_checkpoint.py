"""A worker that is told to stop has time to save, if its run makes checkpoints of steps and the signal leaves time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from conf.launch_options import ClusterConfig
from conf.schema import RunConfig
from tests.support.commands import HANGS_SEC
from tests.support.folders import wait_for
from tracking.jobs.node import interruption, signals
from tracking.record import Journal, run_folder

pytestmark = pytest.mark.slow
SAVES = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
pathlib.Path("saved").touch()
"""
NEVER = "import time\nwhile True: time.sleep(1)"
BY_STEPS = {"checkpoint_every_steps": 5}
BY_EPOCHS = {"checkpoint_every_epochs": 1}
REQUEUED = ClusterConfig(kind="slurm", max_requeues=1, warn_sec=90)


def worker(folder: Path, code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, str(folder / run_folder.STOPPING)], cwd=folder)


@pytest.mark.parametrize(
    ("options", "signum", "saves"),
    [
        (BY_STEPS, signal.SIGTERM, True),
        (BY_STEPS, 0, True),
        (BY_STEPS, interruption.WARNED, True),
        (BY_STEPS, signal.SIGINT, False),
        (BY_STEPS, signal.SIGHUP, False),
        (BY_EPOCHS, signal.SIGTERM, False),
        (BY_EPOCHS | {"cluster": REQUEUED}, interruption.WARNED, True),
        ({}, signal.SIGTERM, False),
    ],
)
def test_it_saves_and_ends_by_itself(tmp_path: Path, options: dict[str, Any], signum: int, saves: bool) -> None:
    process = worker(tmp_path, SAVES)
    interruption.let_save(process, tmp_path, RunConfig(gpus=0, **options), signum)
    if saves:
        assert process.wait(HANGS_SEC) == 0
    process.kill()
    process.wait()
    assert (tmp_path / "saved").exists() == saves
    assert not (tmp_path / run_folder.STOPPING).exists()


def test_one_that_has_not_begun_to_train_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "SAVING_SEC", HANGS_SEC)
    log = Journal(tmp_path / run_folder.JOURNAL)
    log.event("epoch_start")  # of an earlier attempt
    since = (tmp_path / run_folder.JOURNAL).stat().st_size
    log.event("import_start")
    process = worker(tmp_path, NEVER)
    interruption.let_save(process, tmp_path, RunConfig(gpus=0, **BY_STEPS), signal.SIGTERM, since)
    assert process.poll() is None
    process.kill()
    process.wait()
    log.event("epoch_start")
    log.close()
    saving = worker(tmp_path, SAVES)
    interruption.let_save(saving, tmp_path, RunConfig(gpus=0, **BY_STEPS), signal.SIGTERM, since)
    assert saving.wait(HANGS_SEC) == 0
    assert (tmp_path / "saved").exists()


def test_one_that_does_not_end_is_waited_for_no_longer_than_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption, "SAVING_SEC", 0.2)
    process = worker(tmp_path, NEVER)
    interruption.let_save(process, tmp_path, RunConfig(gpus=0, **BY_STEPS), signal.SIGTERM)
    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_second_signal_gives_it_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    monkeypatch.setattr(interruption, "SAVING_SEC", 1e9)
    monkeypatch.setattr(signals, "hurried", told.is_set)
    process = worker(tmp_path, NEVER)
    asked = (process, tmp_path, RunConfig(gpus=0, **BY_STEPS), signal.SIGTERM)
    waiting = threading.Thread(target=interruption.let_save, args=asked, daemon=True)
    waiting.start()
    wait_for((tmp_path / run_folder.STOPPING).exists)
    assert waiting.is_alive()
    told.set()
    waiting.join(HANGS_SEC)
    assert not waiting.is_alive()
    process.kill()
    process.wait()
