"""The end of a job's processes: the next one begins on a machine that has none of them left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracking.folders import wait_for
from tracking.jobs import supervision

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
