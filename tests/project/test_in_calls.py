"""Commands that a benchmark runs in calls, where a call itself is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.composing import ROOT
from tests.support.folders import wait_for

IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "first"),
    [(signal.SIGINT, ""), (signal.SIGTERM, ""), (signal.SIGHUP, ""), (signal.SIGTERM, IGNORES)],
    ids=["SIGINT", "SIGTERM", "SIGHUP", "SIGTERM, which the command ignores"],
)
def test_a_call_that_is_ended_stops_its_commands(tmp_path: Path, number: signal.Signals, first: str) -> None:
    (tmp_path / "waits.py").write_text(
        f"{first}import os, pathlib, time\n"
        "child = os.fork()\n"
        "if child:\n"
        "    pathlib.Path('written').write_text(f'{os.getpid()} {child}')\n"
        "    os.rename('written', 'pids')\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "calls.py").write_text(
        "from benchmarks.steps import in_calls\n"
        "from types import SimpleNamespace\n"
        "in_calls.GRACE_SEC = 1.0\n"
        "in_calls.nvml.visible_gpus = lambda: [SimpleNamespace(index=0)]\n"
        "in_calls.main('calls', lambda indices: [in_calls.Command('waits', 'waits.py')], '.')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    calls = subprocess.Popen([sys.executable, "calls.py"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while not (tmp_path / "pids").exists():
        assert calls.poll() is None
        time.sleep(0.05)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    try:
        calls.send_signal(number)
        assert calls.wait(20) != 0
        wait_for(lambda: not any(map(alive, pids)), 20)
        assert not (tmp_path / "waits.done").exists()
    finally:
        calls.kill()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):  # One that is killed is a zombie until somebody hears of it.
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
