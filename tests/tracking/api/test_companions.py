"""The processes beside a script of many runs: all are forked of one, which may be killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from conf.schema import RunConfig
from tests.support.commands import HANGS_SEC
from tests.support.folders import make_folder
from tracking.api.script_process import THIS_PROCESS, ScriptProcess
from tracking.jobs.follow import companion
from tracking.lightning import time_trial
from tracking.record import Failure, documents, run_folder

pytestmark = pytest.mark.slow


def train(runs_dir: Path) -> None:
    with time_trial({"accuracy": 0.9}, runs_dir=str(runs_dir), offline=True, device="cpu") as trial:
        trial.step(8)
        trial.evaluate({"accuracy": 0.95}, epoch=1)
    THIS_PROCESS.companions[-1].wait(HANGS_SEC)


def source(process: ScriptProcess = THIS_PROCESS) -> int:
    assert process.companion_server is not None
    return process.companion_server.process.pid


def test_one_process_forks_the_companions_of_all_runs_and_is_started_anew_where_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path)
    first = source()
    monkeypatch.chdir(tmp_path)
    train(Path("relative"))
    assert source() == first
    assert THIS_PROCESS.companion_server is not None
    THIS_PROCESS.companion_server.process.send_signal(signal.SIGKILL)
    THIS_PROCESS.companion_server.process.wait(HANGS_SEC)
    train(tmp_path)
    assert source() != first
    folders = [*tmp_path.glob("2*"), *(tmp_path / "relative").glob("2*")]
    assert len(folders) == 3
    for folder in folders:
        assert (folder / ".companion.log").read_text() == ""
        assert json.loads((folder / run_folder.RESULT).read_text())["metrics"]["target_reached"] == 1


@pytest.mark.parametrize(("seen_ms", "kind"), [(2000, "error"), (500, "signal:9")])
def test_a_rank_that_failed_before_the_script_was_killed_is_the_cause(tmp_path: Path, seen_ms: int, kind: str) -> None:
    folder = make_folder(tmp_path, "")
    failed = Failure("error", "a bad word", rank=1, time_ms=1000)
    documents.write_json(folder / run_folder.FAILURE.format(rank=1), failed)
    companion.end(folder, RunConfig(), 7, seen_ms, "")
    result = run_folder.read_result(folder)
    assert result
    assert result.failure
    assert (result.failure.kind, result.status) == (kind, "killed" if seen_ms == 500 else "failed")
