"""What the worker's agent writes when one of its processes fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tracking.record import Failure, Result, run_folder
from trainers.loop.worker import agent


def test_what_a_training_has_finished_stays_finished(tmp_path: Path) -> None:
    """As where it is killed while it saves its model."""
    run_folder.write_result(tmp_path, Result("finished", metrics={"time/to_accuracy_sec": 1.0}))
    assert agent.fail(tmp_path, Failure("signal:9", "killed")) == 1
    result = run_folder.read_result(tmp_path)
    assert result is not None
    assert (result.status, result.metrics) == ("finished", {"time/to_accuracy_sec": 1.0})
    (tmp_path / run_folder.RESULT).unlink()
    agent.fail(tmp_path, Failure("signal:9", "killed"))
    result = run_folder.read_result(tmp_path)
    assert result is not None
    assert result.status == "killed"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_an_agent_without_room_for_its_journal_says_so(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_room(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(agent, "run_training", without_room)
    monkeypatch.setattr(agent, "die_of_signals", lambda: None)
    assert agent.main(tmp_path) == 1
    result = run_folder.read_result(tmp_path)
    assert result is not None
    assert result.failure is not None
    assert (result.status, result.failure.kind) == ("failed", "disk_full")
    assert os.strerror(number) in result.failure.message
