"""What /proc says of processes."""

from __future__ import annotations

import time

import pytest

from tests.commands import ROOT
from tracking.environment import processes
from tracking.trial import script_run


def test_when_a_process_began_does_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    began = processes.begun()
    assert 0 <= time.monotonic() - began < time.clock_gettime(time.CLOCK_BOOTTIME)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert processes.begun() == pytest.approx(began, abs=1)
    monkeypatch.setattr(script_run, "ENDED", [])
    assert script_run.since_begin() == pytest.approx(time.monotonic() - began, abs=1)


def test_nothing_takes_a_duration_from_the_wall_clock_at_which_a_process_was_created() -> None:
    """psutil's create_time() is one: a clock that was set between made time/init_sec an hour."""
    sources = [path for room in ("tracking", "trainers", "timetrial") for path in (ROOT / room).rglob("*.py")]
    assert not [path for path in [ROOT / "launch.py", *sources] if "create_time()" in path.read_text()]
