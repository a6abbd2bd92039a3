"""What /proc says of processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import ROOT
from tracking.api.script_process import ScriptProcess
from tracking.machine.environment import processes


def test_when_a_process_began_does_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    began = processes.begun()
    assert 0 <= time.monotonic() - began < time.clock_gettime(time.CLOCK_BOOTTIME)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert processes.begun() == pytest.approx(began, abs=1)
    assert ScriptProcess().seconds_since_begin(0.0) == pytest.approx(time.monotonic() - began, abs=1)
    assert ScriptProcess(last_end=time.monotonic() - 7).seconds_since_begin(0.0) == pytest.approx(7, abs=1)


@pytest.mark.slow
def test_a_process_that_was_a_shell_with_other_commands_begins_with_python() -> None:
    """`sh -c "prepare; python launch.py"` executes Python in the shell's process, and only the last command is ours."""
    python = "from tracking.machine.environment import processes as p; import time, sys; p.LONG_SHELL_SEC = 0.5"
    python += "; print(time.monotonic() - p.begun())"
    command = ["sh", "-c", 'sleep 1; exec "$0" -c "$1"', sys.executable, python]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) <= time.monotonic() - began - 0.9


def test_nothing_takes_a_duration_from_the_wall_clock_at_which_a_process_was_created() -> None:
    """psutil's create_time() is one: a clock that was set between made time/init_sec an hour."""
    sources = [path for room in ("tracking", "trainers", "timetrial") for path in (ROOT / room).rglob("*.py")]
    assert not [path for path in [ROOT / "launch.py", *sources] if "create_time()" in path.read_text()]


def test_what_the_kernel_killed_for_want_of_memory_is_counted_in_either_version_of_cgroups(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/job/step\n0::/slice\n")
    assert processes.oom_kills(tmp_path, own) == 0
    (tmp_path / "slice").mkdir()
    (tmp_path / "slice/memory.events").write_text("low 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert processes.oom_kills(tmp_path, own) == 2
    (tmp_path / "memory/job/step").mkdir(parents=True)
    (tmp_path / "memory/job/step/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert processes.oom_kills(tmp_path, own) == 1  # version 1 has the memory
    own.write_text("0::/seen/from/outside\n")  # a container, whose own cgroup lies at the root
    (tmp_path / "memory.events").write_text("oom_kill 5\n")
    assert processes.oom_kills(tmp_path, own) == 5
    assert processes.oom_kills(tmp_path, tmp_path / "absent") == 0
