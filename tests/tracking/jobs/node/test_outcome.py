"""The end of a job's processes: all have ended before the next job begins."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conf.schema import RunConfig
from tests.support import studied
from tests.support.folders import wait_for
from tracking.analysis.results import End
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.jobs.follow import result_table
from tracking.jobs.node import outcome, signals, worker_process
from tracking.machine.environment import processes
from tracking.record import Failure, Result, run_folder

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
    assert len(processes.alive(process.pid)) == 2
    worker_process.stop([process])
    assert not processes.alive(process.pid)
    assert process.returncode == -15


def test_the_result_of_a_worker_gets_the_neighbours_that_it_could_not_see(tmp_path: Path) -> None:
    measured = Result("finished", metrics={"world_size": 1.0, "time/init_sec": 2.0})
    run_folder.write_result(tmp_path, measured)
    assert outcome.end(tmp_path, None) == measured
    ended = outcome.end(tmp_path, None, "gpu 0: 1 process")
    assert ended == run_folder.read_result(tmp_path) == dataclasses.replace(measured, neighbours="gpu 0: 1 process")
    assert ("neighbours", "gpu 0: 1 process") in result_table.run_rows(ended)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Failure("signal:9", "rank 0 was killed by SIGKILL"), "its last words\n"),
        (Failure("error", "rank 0 ended with exit code 7"), "its last words\n"),
        (Failure("error", "ValueError: x", "a traceback"), "a traceback"),
        (Failure("bad_input", "no such file"), ""),
    ],
)
def test_what_a_worker_printed_last_is_added_when_all_of_it_is_in_its_log(
    tmp_path: Path, failure: Failure, words: str
) -> None:
    """A worker that reads its own log may find less there than it has printed: another process writes it."""
    run_folder.write_result(tmp_path, Result("failed", failure=failure))
    (tmp_path / run_folder.WORKER_LOG).write_text("its last words\n")
    ended = outcome.end(tmp_path, None)
    assert ended == run_folder.read_result(tmp_path)
    assert ended.failure == dataclasses.replace(failure, traceback=words)


@pytest.mark.parametrize(
    ("kind", "known"),
    [("timeout", True), ("nan", True), ("preempted", True), ("signal:15", True), ("oom", False), ("signal:9", False)],
)
def test_by_when_a_run_had_not_reached_its_target_is_journaled(tmp_path: Path, kind: str, known: bool) -> None:
    """By the launcher, where the worker could not: of a timeout before there is a result, of a nan after it."""
    asked: RunConfig = studied.config(price=3.6, timeout_sec=60.0)
    folder = studied.make_run(
        tmp_path, asked, "sqlite:///none.db", failure=kind, failed_after=(0.5, 0.8), recorded=False
    )
    failure = None
    if kind == "timeout":
        (folder / "result.json").unlink()
        failure = Failure("timeout", "the run took longer than timeout_sec=60")
    outcome.record_given_up(folder, asked, failure)
    outcome.end(folder, failure)
    (run,) = FolderRuns([tmp_path]).find([folder.name])
    expected = {"time/censored_sec": 2.6, "cost/usd": 0.0026} if known else {}
    assert {key: run.metrics[key] for key in ("time/censored_sec", "cost/usd") if key in run.metrics} == pytest.approx(
        expected
    )


def test_a_run_that_was_told_to_stop_says_by_when_it_had_not_reached_its_target(tmp_path: Path) -> None:
    folder = studied.make_run(
        tmp_path, studied.config(), "sqlite:///none.db", failure="signal:2", failed_after=(0.5, 0.8), recorded=False
    )
    (folder / "result.json").unlink()
    outcome.stopped(folder, signals.Interrupted(signal.SIGINT))
    (run,) = FolderRuns([tmp_path]).find([folder.name])
    assert run.end is End.STOPPED
    assert run.metrics["time/censored_sec"] == pytest.approx(2.6)
    assert run.metrics["evaluations/censored"] == 2


def test_a_worker_that_dies_of_the_end_of_its_time_has_timed_out(tmp_path: Path) -> None:
    """Its agent may see a rank end by the launcher's signal, and write that down, before it ends itself."""
    asked: RunConfig = studied.config(price=3.6, timeout_sec=60.0)
    folder = studied.make_run(
        tmp_path, asked, "sqlite:///none.db", failure="signal:15", failed_after=(0.5, 0.8), recorded=False
    )
    failure = Failure("timeout", "the run took longer than timeout_sec=60")
    outcome.record_given_up(folder, asked, failure)
    assert outcome.end(folder, failure).failure == failure
    (run,) = FolderRuns([tmp_path]).find([folder.name])
    assert run.metrics["time/censored_sec"] == pytest.approx(2.6)
