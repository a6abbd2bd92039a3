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
from tracking.jobs.queues.machine import Machine
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
