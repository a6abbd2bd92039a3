"""Workers of a sweep are forked from one process that has imported once; each is as one that was started anew."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.commands import TINY, begin, collect, events, processes_of
from tests.support.folders import wait_for
from tests.support.run_processes import workers_of
from tracking.base import quantities
from tracking.record import checkpoints, run_folder

pytestmark = pytest.mark.slow
ENDLESS = ("max_epochs=100000", "target=1", "stop_at_target=false", "model.hparams.rest_sec=0.02")


def training(cwd: Path) -> list[Path]:
    """The folders of runs that have begun an epoch, in order."""
    folders = [path.parent for path in cwd.rglob(run_folder.CONFIG) if (path.parent / run_folder.RUN).exists()]
    return sorted(folder for folder in folders if events(folder, "epoch_start"))


@pytest.mark.exhaustive
def test_a_killed_server_takes_its_run_along_and_the_next_ones_have_another(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    options = ("model.hparams.fault=hang", f"model.hparams.marker={mended}", "max_epochs=1", "cpu_processes=1,2,3")
    process = begin(tmp_path, "-m", *TINY, *options, "tracking.offline=true")
    wait_for(lambda: training(tmp_path) or process.poll() is not None)
    [first] = training(tmp_path)
    [worker] = workers_of(first, tmp_path)
    server = worker.parent()
    mended.touch()
    server.kill()
    ran = collect(process, tmp_path)
    wait_for(lambda: not processes_of(tmp_path))
    assert not worker.is_running()
    assert ran.code == 1, ran.output
    results = [json.loads((folder / run_folder.RESULT).read_text()) for folder in ran.folders]
    assert [result["status"] for result in results] == ["killed", "finished", "finished"]
    assert [result["metrics"][quantities.WORLD_SIZE] for result in results[1:]] == [2, 3]
    assert results[0]["failure"]["kind"] == f"signal:{int(signal.SIGKILL)}"
    [before], [second], [third] = [events(folder, "forked") for folder in ran.folders]
    assert (before.value, second.value) == (server.pid, third.value)
    assert second.value != server.pid
    importing = [result["metrics"][quantities.init_part("import")] for result in results[1:]]
    rest = [result["metrics"][quantities.TIME_INIT_SEC] for result in results[1:]]
    assert all(0 < part < whole for part, whole in zip(importing, rest, strict=True))


@pytest.mark.parametrize("who", ["launcher", pytest.param("supervisor", marks=pytest.mark.exhaustive)])
def test_a_killed_launcher_lets_a_fork_save_and_a_killed_supervisor_takes_it_along(tmp_path: Path, who: str) -> None:
    options = (*ENDLESS, "checkpoint_every_steps=100000", "seed=1,2", "timeout_sec=3600")
    process = begin(tmp_path, "-m", *TINY, *options, "tracking.offline=true")
    try:
        wait_for(lambda: training(tmp_path) or process.poll() is not None)
        [folder] = training(tmp_path)
        [worker] = workers_of(folder, tmp_path)
        supervisors = psutil.Process(process.pid).children()
        if who == "supervisor":
            for supervisor in supervisors:
                supervisor.kill()
            wait_for(lambda: not worker.is_running())
            assert checkpoints.newest(folder) is None
            wait_for(lambda: len(training(tmp_path)) == 2 or process.poll() is not None)
            assert process.poll() is None, "the sweep goes on"
        process.kill()
        wait_for(lambda: not processes_of(tmp_path))
    finally:
        process.kill()
        process.communicate()
    assert checkpoints.newest(training(tmp_path)[-1]) is not None
