"""The end of a job's processes: the next one begins on a machine that has none of them left."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracking.folders import wait_for
from tracking.jobs import console, supervision
from tracking.run import Result, run_folder

# Ends when it is told to, and leaves a child that does not, with so much memory that its end takes a while.
STUBBORN = """
import os, pathlib, signal, sys, time
if not os.fork():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    held = b"x" * 10**9
    pathlib.Path(sys.argv[1], "ready").touch()
time.sleep(600)
"""


@pytest.mark.slow
def test_a_job_ends_when_all_of_its_processes_have(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN, str(tmp_path)], start_new_session=True)
    wait_for((tmp_path / "ready").exists)
    assert len(supervision.alive(process.pid)) == 2
    supervision.stop(process)
    assert not supervision.alive(process.pid)
    assert process.returncode == -15


def test_the_result_of_a_worker_gets_the_neighbours_that_it_could_not_see(tmp_path: Path) -> None:
    measured = Result("finished", metrics={"world_size": 1.0, "time/init_sec": 2.0})
    run_folder.write_result(tmp_path, measured)
    assert supervision.end(tmp_path, None) == measured
    ended = supervision.end(tmp_path, None, "gpu 0: 1 process")
    assert ended == run_folder.read_result(tmp_path) == dataclasses.replace(measured, neighbours="gpu 0: 1 process")
    assert ("neighbours", "gpu 0: 1 process") in console.run_rows(ended)
