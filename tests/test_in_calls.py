"""Commands that a benchmark runs in calls, where a call itself is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands import HANGS_SEC
from tests.composing import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_call_that_is_ended_stops_its_commands(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "waits.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path('written').write_text(str(os.getpid()))\n"
        "os.rename('written', 'pid')\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "calls.py").write_text(
        "from benchmarks.steps import in_calls\n"
        "from types import SimpleNamespace\n"
        "in_calls.nvml.visible_gpus = lambda: [SimpleNamespace(index=0)]\n"
        "in_calls.main('calls', lambda indices: [in_calls.Command('waits', 'waits.py')], '.')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    calls = subprocess.Popen([sys.executable, "calls.py"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists():
        assert calls.poll() is None
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    try:
        calls.send_signal(number)
        assert calls.wait(HANGS_SEC) != 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert not (tmp_path / "waits.done").exists()
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
