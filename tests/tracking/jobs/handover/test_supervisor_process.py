"""A supervisor that waits for a run gets the run and the lock of its folder, or ends with its launcher."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import environment
from tests.support.folders import wait_for
from tests.support.studied import config
from tracking.jobs.handover import Assignment, SupervisorProcess, ahead, supervisor_process
from tracking.jobs.queues.queue_kinds import queue_of
from tracking.record import Running, run_lock

pytestmark = pytest.mark.slow
# Takes the run over, says of what it is told, and keeps the folder's lock until its launcher is gone.
STAND_IN = """
import os, sys
from pathlib import Path
from tracking.jobs.handover import Lifeline, received
from tracking.record import run_lock
told = received()
if told is None:
    sys.exit(7)
owner = run_lock.take(told.folder, inherited=told.lock)
(told.folder / "told").write_text(f"{told.started} {told.timeout_sec} {told.environment}")
Lifeline.of("none").cut(None)
(told.folder / "launcher is gone").touch()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(supervisor_process, "SUPERVISOR", "stand_in")


@pytest.mark.usefixtures("stand_in")
def test_a_run_is_handed_over_with_the_lock_of_its_folder(tmp_path: Path) -> None:
    waiting = SupervisorProcess()
    owner = run_lock.make(tmp_path, "run")
    waiting.assign(Assignment(owner.folder, owner.descriptor, 1.5, 60.0, 10.0, {"CORES": "0-3"}))
    owner.let_go()  # The message has the lock now: no moment is without an owner.
    with pytest.raises(Running), run_lock.hold_abandoned(owner.folder):
        pass
    wait_for((owner.folder / "told").exists)
    assert (owner.folder / "told").read_text() == "1.5 60.0 {'CORES': '0-3'}"
    assert waiting.ended() is None
    waiting.dismiss()  # It has a run, and keeps it.
    assert waiting.ended() is None
    waiting.tell(9)
    wait_for(lambda: waiting.ended() == -9)
    with run_lock.hold_abandoned(owner.folder):
        pass


@pytest.mark.usefixtures("stand_in")
def test_one_that_got_no_run_ends_with_its_launcher(tmp_path: Path) -> None:
    waiting = SupervisorProcess()
    waiting.dismiss()
    assert waiting.ended() is not None
    launcher = "from tracking.jobs.handover import supervisor_process as s; s.SUPERVISOR = 'stand_in';"
    launcher += "print(s.SupervisorProcess().process.pid); import os; os._exit(0)"
    pid = subprocess.run(
        [sys.executable, "-c", launcher], env=environment(PYTHONPATH=str(tmp_path)), text=True, capture_output=True
    ).stdout.strip()
    wait_for(lambda: not Path("/proc", pid).exists() or "Z" in Path("/proc", pid, "stat").read_text())


@pytest.mark.usefixtures("stand_in")
def test_one_is_started_before_the_request_is_read_unless_no_run_here_is_asked_for() -> None:
    for words in (["gpus=0"], ["-m", "seed=1,2", "--config-dir", "x"], ["model=clusters"], []):
        with ahead(words) as waiting:
            assert waiting
            assert waiting.ended() is None
        assert waiting.ended() is not None
    for word in (
        "--help",
        "-h",
        "--cfg=job",
        "--version",
        "dry_run=true",
        "cluster=slurm",
        "+cluster.nodes=2",
        "node_rank=1",
    ):
        with ahead(["gpus=0", word]) as waiting:
            assert waiting is None


@pytest.mark.usefixtures("stand_in")
def test_a_queue_elsewhere_dismisses_the_one_that_waits() -> None:
    asked = config()
    asked.cluster.kind = "slurm"
    waiting = SupervisorProcess()
    queue_of(asked, waiting)
    assert waiting.ended() is not None


@pytest.mark.usefixtures("stand_in")
def test_one_that_has_died_takes_no_run_and_its_exit_code_says_so(tmp_path: Path) -> None:
    waiting = SupervisorProcess()
    waiting.tell(9)
    wait_for(lambda: waiting.ended() == -9)
    with run_lock.make(tmp_path, "run") as owner:
        waiting.assign(Assignment(owner.folder, owner.descriptor, 0.0, None, 10.0))
        assert waiting.ended() == -9
