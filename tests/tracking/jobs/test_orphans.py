"""A launcher that dies at any moment of a job's start: all that it began ends, and no job runs twice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import dying_launch, forked
from tests.support.commands import TINY, collect, environment, processes_of, start
from tests.support.folders import wait_for
from tracking.cli import main as tracking
from tracking.jobs.follow import unfinished
from tracking.record import run_folder, run_lock

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not forked.possible(), reason="it dies in a fork")]

SHARED = ("-m", *TINY, "gpus=0", "max_epochs=1", "seed=1,2", "sweep.jobs_at_once=2", "tracking.upload_wait_sec=1")


def die(cwd: Path, name: str, moment: str, *arguments: str) -> str:
    """Start a launcher that dies then, and wait until nothing of it is left; what it printed."""
    begun = forked.Forked([name, moment, *arguments], cwd, environment(), script=dying_launch.__file__)
    output = collect(begun, cwd).output
    wait_for(lambda: not processes_of(cwd))
    return output


def results(cwd: Path) -> dict[Path, dict[str, object]]:
    """The statuses of sweeps and runs by folder; fails if one has no status."""
    folders = run_folder.run_folders(cwd / "runs")
    return {folder: json.loads((folder / run_folder.RESULT).read_text()) for folder in folders}


# At the other moments one that is stopped ends as at the one before; one that is killed ends nothing.
STOPPED = ("started",)
DEATHS = [
    pytest.param(moment, name, marks=[pytest.mark.exhaustive] * (name == "SIGINT" and moment not in STOPPED))
    for moment in dying_launch.MOMENTS
    for name in ("SIGKILL", "SIGINT")
]


@pytest.mark.parametrize(("moment", "name"), DEATHS)
def test_every_folder_is_ended_and_nothing_half_written_stays(moment: str, name: str, tmp_path: Path) -> None:
    output = die(tmp_path, name, moment, *SHARED)
    if name == "SIGINT":
        assert "Traceback" not in output
        assert all((folder / run_folder.RESULT).exists() for folder in run_folder.run_folders(tmp_path / "runs"))
    code = tracking(["sync", str(tmp_path / "runs")])
    there = results(tmp_path)
    assert code == (0 if there else 2), output
    statuses = [result["status"] for result in there.values()]  # the sweep's first
    assert set(statuses[:1]) <= {"killed", "failed"}
    assert set(statuses[1:]) <= {"killed", "failed", "finished"}, "a job may have ended before the signal came"
    left = [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]
    assert not left
    assert {path.parent for path in tmp_path.rglob(".owner")} == set(there)


@pytest.mark.exhaustive
def test_a_sweep_whose_launcher_was_killed_goes_on_when_its_jobs_have_ended(tmp_path: Path) -> None:
    """A process of the first job stays for as long as this test holds its lock, and is waited for."""
    die(tmp_path, "SIGKILL", "started", *SHARED)
    [sweep, *before] = run_folder.run_folders(tmp_path / "runs")
    assert tracking(["sync", str(sweep)]) == 0
    (before[0] / run_folder.RESULT).unlink()
    with run_lock.hold(before[0]):
        resumed = start(tmp_path, f"sweep.resume={sweep.name}", "sweep.jobs_at_once=2")
        assert resumed.stdout
        said = next((line for line in resumed.stdout if "waiting for its end" in line), "nothing")
        assert f"process {os.getpid()} on" in said
        assert run_folder.run_folders(sweep)[1:] == before
        released_ms = run_folder.now_ms()
    run = collect(resumed, tmp_path)
    assert run.code == 0, run.output
    there = results(tmp_path)
    assert there[sweep]["status"] == "finished"
    assert [there[folder]["status"] for folder in before] == ["killed", "killed"]
    anew = [folder for folder in run_folder.run_folders(sweep)[1:] if folder not in before]
    assert [there[folder]["status"] for folder in anew] == ["finished", "finished"]
    assert all(run_folder.read_info(folder).created_ms >= released_ms for folder in anew)
    assert not unfinished.incomplete(sweep)
