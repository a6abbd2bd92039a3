"""Ctrl-C reaches every job at once, and a second one waits for none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conf.schema import RunConfig
from tests.support.commands import environment
from tests.support.composing import composed
from tests.support.folders import wait_for
from tracking.jobs.handover import supervisor_process
from tracking.jobs.queues.this_machine import Machine
from tracking.record import run_lock

pytestmark = [pytest.mark.slow, pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it takes two cores")]
# A supervisor that ends only when both have been told to stop.
MUTUAL = """
import signal, sys, time
from tracking.jobs.handover import received
told = received()
def stop(number, frame):
    (told.folder / "told").write_text(signal.Signals(number).name)
    while len(list(told.folder.parent.glob("*/told"))) < 2:
        time.sleep(0.01)
    sys.exit(1)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)
(told.folder / "ready").touch()
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
time.sleep(600)
"""
# Ends a process that ignores SIGTERM, with an hour's grace.
PATIENT = """
import subprocess, sys
from pathlib import Path
from tracking.jobs.node import signals, worker_process
worker_process.GRACE_SEC = 3600.0
ignores = "import signal, time, pathlib; signal.signal(signal.SIGTERM, lambda *_: pathlib.Path('asked').touch());"
ignores += "pathlib.Path('ready').touch()\\nwhile True: time.sleep(1)"
process = subprocess.Popen([sys.executable, "-c", ignores], start_new_session=True)
try:
    signals.raise_on_signals()
    process.wait()
except signals.Interrupted:
    worker_process.stop([process])
    sys.exit(-process.returncode)
"""


def test_every_job_is_told_before_any_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mutual.py").write_text(MUTUAL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(supervisor_process, "SUPERVISOR", "mutual")
    config: RunConfig = composed(["gpus=0"])
    machine = Machine(at_once=2)
    machine.check([config])
    tickets = []
    for name in ("a", "b"):
        with run_lock.make(tmp_path / "runs", name) as owner:
            tickets.append(machine.submit(owner, config, name, 0.0))
        wait_for((owner.folder / "ready").exists)
    machine.cancel(tickets, signal.SIGINT)
    wait_for(lambda: not any(state.active for state in machine.states(tickets).values()))
    assert [(tmp_path / "runs" / name / "told").read_text() for name in ("a", "b")] == ["SIGINT", "SIGINT"]
    assert {str(state) for state in machine.states(tickets).values()} == {"exit code 1"}


def test_a_second_signal_ends_the_grace(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PATIENT], cwd=tmp_path, env=environment())
    wait_for((tmp_path / "ready").exists)
    process.send_signal(signal.SIGINT)
    wait_for((tmp_path / "asked").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == signal.SIGKILL


def test_a_supervisor_that_was_killed_while_it_waited_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mutual.py").write_text(MUTUAL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(supervisor_process, "SUPERVISOR", "mutual")
    waiting = supervisor_process.SupervisorProcess()
    machine = Machine(1, waiting)
    waiting.tell(signal.SIGKILL)
    wait_for(lambda: waiting.ended() is not None)
    with run_lock.make(tmp_path / "runs", "a") as owner:
        made = machine.submit(owner, composed(["gpus=0"]), "a", 0.0)
    wait_for((owner.folder / "ready").exists)
    machine.cancel([made], signal.SIGKILL)
    wait_for(lambda: not machine.states([made])[made.job_id].active)


# Submits a job to a queue that is told to stop meanwhile, and detaches from it.
SUBMITTED_ONCE = """
import os, signal
from pathlib import Path
from types import SimpleNamespace
from tests.support.composing import composed
from tracking.base.console import make_console
from tracking.base.event_stream import EventStream
from tracking.jobs.node import Ticket, signals
from tracking.jobs.plan.job import Job
from tracking.jobs.queues.following import Following
from tracking.record import run_lock

submitted = []
class Queue:
    at_once, outlives, poll_sec, settling_sec = 5, True, 1.0, 10.0
    def has_room(self, config):
        return True
    def submit(self, owner, config, name, started, after=""):
        submitted.append(name)
        os.kill(os.getpid(), signal.SIGTERM)
        return Ticket("slurm", "1")
job = Job(composed(["gpus=0", "cluster=slurm"]), [])
uploads = SimpleNamespace(start=print, ended=print)
owner = lambda job: run_lock.make(Path("runs"), "a")
following = Following(Queue(), uploads, make_console(), owner, 1, 0.0, EventStream())
signals.raise_on_signals()
try:
    following.follow([job])
except signals.Interrupted:
    following.detach([job])
assert len(submitted) == 1, submitted
"""


def test_a_job_that_was_being_submitted_when_a_signal_came_is_not_submitted_again(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", SUBMITTED_ONCE], cwd=tmp_path, env=environment(), check=False)
    assert ended.returncode == 0
