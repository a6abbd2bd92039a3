"""Launchers and workers killed for real, beside a real MLflow server: the status becomes right, and nobody stays."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support import quick_launch
from tests.support.commands import HANGS_SEC, ROOT, TINY, begin, collect, environment, events, kill_all, processes_of
from tests.support.faulty_proxy import FaultyProxy
from tests.support.folders import wait_for
from tests.support.forked import Forked
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import expected_rows, query, status_of, stored_rows, tags_of
from tests.support.run_processes import workers_of
from tracking.jobs.follow.sync import Outcome, sync
from tracking.record import run_folder
from tracking.store.mirror.mirror import Mirror

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

HANG = {"then": "hang", "rows": 20}
FINISH = {"then": "finish"}
AGAIN_SEC = 5.0  # Somebody who waits for the launcher to end tells it so again after that.


def folders(cwd: Path) -> list[Path]:
    """The folders of runs and sweeps, parents first."""
    return run_folder.run_folders(cwd / "runs")


def trains(folder: Path, rows: int = 20) -> bool:
    path = folder / run_folder.JOURNAL
    return path.exists() and len(expected_rows(folder)) >= rows


def finished(process: Forked | subprocess.Popen[str], timeout_sec: float = HANGS_SEC) -> tuple[int, str]:
    output, _ = process.communicate(timeout=timeout_sec)
    return process.returncode, output


def run_of(server: MlflowServer, folder: Path) -> tuple[str, int, int]:
    """Status, start and end in ms."""
    [row] = query(server, "select status, start_time, end_time from runs where run_uuid = ?", Mirror(folder).run_id)
    return row


def test_a_killed_sweep_is_ended_by_the_next_launch_and_can_be_continued(server: MlflowServer, tmp_path: Path) -> None:
    killed = quick_launch.begin(tmp_path, server.uri, HANG, FINISH)
    wait_for(lambda: folders(tmp_path)[1:] and trains(folders(tmp_path)[1]))
    sweep, child = folders(tmp_path)
    wait_for(lambda: Mirror(child).state.offset and Mirror(sweep).run_id)
    [outcome] = [
        candidate for candidate in sync([child]) if candidate.folder == child
    ]  # while it trains, nobody ends it
    assert outcome.state == "running"
    supervisor, worker = (process for process in processes_of(tmp_path) if process.pid != killed.pid)
    assert f"process {supervisor.pid} on" in outcome.message
    assert status_of(server, Mirror(child).run_id) == "RUNNING"
    assert child / run_folder.RUN_LOCK in [link.readlink() for link in Path(f"/proc/{worker.pid}/fd").iterdir()]
    killed.kill()
    killed.communicate()
    wait_for(lambda: not processes_of(tmp_path))

    code, output = finished(quick_launch.begin(tmp_path, server.uri, FINISH))  # the next launch, of something else
    assert code == 0, output
    assert "MLflow lacks parts of 1 earlier run (1 cut off" in output
    assert f"sync runs/{sweep.name}" in output
    for folder in (sweep, child):
        status, started, ended = run_of(server, folder)
        info = run_folder.read_info(folder)
        assert (status, started) == ("KILLED", info.created_ms)
        assert tags_of(server, Mirror(folder).run_id)["failure"] == "signal:9"
        assert ended >= max(row[2] for row in expected_rows(child))
    note = tags_of(server, Mirror(child).run_id)["mlflow.note.content"]
    assert "its launcher was killed" in note
    assert "these are the worker's last words" in note
    assert tags_of(server, Mirror(child).run_id)["mlflow.parentRunId"] == Mirror(sweep).run_id
    assert f"sweep.resume={sweep.name}" in tags_of(server, Mirror(sweep).run_id)["mlflow.note.content"]

    resumed = quick_launch.begin(tmp_path, server.uri, FINISH, f"--resume={sweep.name}")
    wait_for(lambda: run_of(server, sweep)[0] == "RUNNING")
    assert "failure" not in tags_of(server, Mirror(sweep).run_id)
    (tmp_path / "mended").touch()
    code, output = finished(resumed)
    assert code == 0, output
    assert "MLflow lacks" not in output
    assert run_of(server, sweep)[0] == "FINISHED"
    assert "failure" not in tags_of(server, Mirror(sweep).run_id)
    assert not list((tmp_path / "runs" / ".unfinished").iterdir())


def test_when_all_is_killed_at_once_and_the_server_is_down_sync_does_the_rest_once(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    process = quick_launch.begin(tmp_path, proxy.uri, HANG, FINISH)
    wait_for(lambda: folders(tmp_path)[1:] and Mirror(folders(tmp_path)[1]).run_id)
    proxy.fault = "refuse"
    wait_for(lambda: trains(folders(tmp_path)[1]))
    kill_all(tmp_path)
    process.communicate()
    proxy.fault = None
    sweep, child = folders(tmp_path)
    script = str(ROOT / "tracking/__main__.py")
    both = [Forked(["sync", str(child)], tmp_path, environment(), script=script) for _ in range(2)]  # the parent, too
    for launcher in both:
        code, output = finished(launcher)
        assert (code, output.count("complete:")) == (0, 2), output
    assert stored_rows(server, Mirror(child).run_id) == expected_rows(child)
    assert len(expected_rows(child)) >= 20
    assert [run_of(server, folder)[0] for folder in (sweep, child)] == ["KILLED", "KILLED"]
    assert tags_of(server, Mirror(child).run_id)["mlflow.parentRunId"] == Mirror(sweep).run_id
    before = dump(server, sweep, child)
    assert [outcome.state for outcome in sync([sweep, child])] == ["complete", "complete"]
    assert dump(server, sweep, child) == before


@pytest.mark.parametrize("seed", range(int(os.environ.get("TIMETRIAL_NUM_KILLS", "1"))))
def test_a_launcher_killed_at_any_moment_leaves_nothing_that_sync_does_not_end(
    server: MlflowServer, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    moment = random.Random(seed).uniform(0.3, 5)
    process = quick_launch.begin(tmp_path, server.uri, {"rows": 50, "sec": 0.03, "then": "finish"}, FINISH, HANG)
    time.sleep(moment)
    process.kill()
    process.communicate()
    wait_for(lambda: not processes_of(tmp_path))
    run_folders = folders(tmp_path)
    outcomes = sync(run_folders)
    with capsys.disabled():
        print(f"\nkilled after {moment:.2f} s: {[states(outcome) for outcome in outcomes]}")
    assert {outcome.state for outcome in outcomes} <= {"complete"}
    for folder in run_folders:
        assert run_of(server, folder)[0] in ("FINISHED", "KILLED")
        assert stored_rows(server, Mirror(folder).run_id) == expected_rows(folder)


def states(outcome: Outcome) -> str:
    result = run_folder.read_result(outcome.folder)
    return f"{run_folder.read_info(outcome.folder).kind} {result.status if result else None}"


def test_killed_ranks_and_workers_fail_their_job_alone_and_take_all_of_it_with_them(
    server: MlflowServer, tmp_path: Path
) -> None:
    """The real worker's process of rank 0, and the one above the ranks, each at a random moment of the training.

    Killed, or told to stop by a signal that Python, Lightning and torchrun each make an exception of.

    tests/launch/test_sweeps.py kills rank 1.
    """
    told = [
        ("rank 0", signal.SIGKILL),
        ("worker", signal.SIGKILL),
        ("rank 0", signal.SIGHUP),
        ("worker", signal.SIGINT),
    ]
    settings = ("model.hparams.fault=hang", "cpu_processes=2", "seed=1,2,3,4", f"tracking.uri={server.uri}")
    process = begin(tmp_path, "-m", *TINY, *settings)
    for number, (who, signum) in enumerate(told):
        wait_for(lambda number=number: len(started(tmp_path)) > number)
        time.sleep(random.uniform(0, 0.5))
        [worker] = workers_of(started(tmp_path)[number], tmp_path)
        ranks = sorted(worker.children(), key=lambda rank: rank.create_time())
        assert len(ranks) == 2
        (worker if who == "worker" else ranks[0]).send_signal(signum)
        _, alive = psutil.wait_procs([worker, *ranks], timeout=HANGS_SEC)
        assert not alive
    launched = collect(process, tmp_path)
    assert launched.code == 1, launched.output
    for folder, (who, signum) in zip(started(tmp_path), told, strict=True):
        tags = tags_of(server, Mirror(folder).run_id)
        assert (run_of(server, folder)[0], tags["failure"]) == ("KILLED", f"signal:{int(signum)}")
        assert f"{who} was killed by {signum.name}" in tags["mlflow.note.content"]
        # Its last words, whichever these are: rank 1 may hang already, or fail as rank 0 is gone.
        said = (folder / run_folder.WORKER_LOG).read_text().strip().splitlines()[-1]
        assert said[-200:] in tags["mlflow.note.content"]
    assert not processes_of(tmp_path)


def started(cwd: Path) -> list[Path]:
    """The folders whose training has begun, in order."""
    return sorted(folder for folder in folders(cwd) if events(folder, "epoch_start"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_stopped_twice_the_second_time_ends_the_waiting(tmp_path: Path, proxy: FaultyProxy, number: int) -> None:
    process = quick_launch.begin(tmp_path, proxy.uri, HANG, WAIT_SEC="86400")
    wait_for(lambda: folders(tmp_path) and trains(folders(tmp_path)[0]))
    [folder] = folders(tmp_path)
    wait_for(lambda: Mirror(folder).state.offset)
    proxy.fault = "hang"
    process.send_signal(number)
    wait_for(lambda: run_folder.read_result(folder) and proxy.counts["hang"])
    for _ in range(int(HANGS_SEC / AGAIN_SEC)):  # A signal that comes before it waits for the upload is ignored.
        assert process.poll() is None, "the upload hangs for as long as the launcher may wait"
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(AGAIN_SEC)
            break
    code, output = finished(process)
    assert code == 1, output
    assert "not uploaded" in output
    assert f"sync runs/{folder.name}" in output
    assert not processes_of(tmp_path)
    proxy.fault = None
    assert [outcome.state for outcome in sync([folder])] == ["complete"]
    assert json.loads((folder / run_folder.RESULT).read_text())["failure"]["kind"] == f"signal:{int(number)}"


def test_nobody_has_to_look(server: MlflowServer, tmp_path: Path) -> None:
    """The reader of a pipe, or the terminal, is gone: the run goes on without a word."""
    process = quick_launch.start(tmp_path, server.uri, {"rows": 30, "sec": 0.02, "then": "finish"}, FINISH)
    assert process.stdout
    process.stdout.close()
    assert process.wait(HANGS_SEC) == 0
    assert {run_of(server, folder)[0] for folder in folders(tmp_path)} == {"FINISHED"}


@pytest.mark.slow
def test_a_worker_whose_launcher_is_gone_before_it_looks_ends(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    worker = subprocess.run(
        [sys.executable, "-m", "tests.support.quick_worker", str(tmp_path)],
        env=environment(TIMETRIAL_LAUNCHER=str(gone.pid)), timeout=HANGS_SEC, check=False,
    )  # fmt: skip
    assert worker.returncode == -signal.SIGKILL


def dump(server: MlflowServer, *of: Path) -> list[list[tuple]]:
    ids = [Mirror(folder).run_id for folder in of]
    return [
        query(server, f"select * from {table} where run_uuid in (?, ?) order by 1, 2, 3", *ids)
        for table in ("runs", "tags", "params", "metrics")
    ]


def test_a_killed_supervisor_takes_its_job_along_and_the_sweep_goes_on(server: MlflowServer, tmp_path: Path) -> None:
    process = quick_launch.begin(tmp_path, server.uri, HANG, FINISH)
    wait_for(lambda: folders(tmp_path)[1:] and trains(folders(tmp_path)[1]))
    [supervisor] = [each for each in processes_of(tmp_path) if each.ppid() == process.pid]
    supervisor.kill()
    code, output = finished(process)
    assert code == 1, output
    sweep, killed, other = folders(tmp_path)
    assert tags_of(server, Mirror(killed).run_id)["failure"] == "signal:9"
    assert [run_of(server, folder)[0] for folder in (killed, other)] == ["KILLED", "FINISHED"]
    assert Mirror(sweep).complete
    assert not processes_of(tmp_path)
