"""How forked runs, their servers, supervisors and launchers end, and whom each takes along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from conf.schema import RunConfig
from tests.support.commands import HANGS_SEC, environment
from tests.support.folders import make_folder, wait_for
from tests.tracking.jobs.handover.forked_runs import Runs, alive, has_files, stopped
from tracking.jobs.handover import ForkedWorker, ForkServers
from tracking.jobs.node import interruption
from tracking.record import run_folder

pytestmark = pytest.mark.slow


def test_a_run_that_crashes_or_is_killed_ends_alone_and_other_variables_have_another_server(runs: Runs) -> None:
    killed, other = runs.start("a", wait=True), runs.start("b", wait=True, MORE="2")
    assert runs.report("a")["parent"] != runs.report("b")["parent"]
    os.killpg(killed.pid, signal.SIGKILL)
    assert killed.wait(HANGS_SEC) == -signal.SIGKILL
    assert other.poll() is None
    assert runs.start("c").wait(HANGS_SEC) == 3
    assert runs.report("c")["parent"] == runs.report("a")["parent"], "its server goes on"


def test_a_run_ends_with_its_supervisor_and_a_server_with_its_launcher_and_its_runs(runs: Runs) -> None:
    run = runs.start("a", wait=True)
    assert isinstance(run, ForkedWorker)
    first = runs.report("a")
    runs.started.remove(run)
    run._channel.close()  # as the kernel does when its supervisor dies
    wait_for(lambda: not psutil.pid_exists(first["pid"]))
    other = runs.start("b", wait=True)
    there = runs.report("b")
    assert there["parent"] == first["parent"]
    runs.servers.end()  # as the kernel does when its launcher dies
    assert runs.start("c").wait(HANGS_SEC) == 3
    assert runs.report("c")["parent"] == os.getpid(), "no server takes a further run"
    assert other.poll() is None, "its supervisor may let it save before it ends it"
    (runs.root / "b/wait").unlink()
    assert other.wait(HANGS_SEC) == 3
    wait_for(lambda: not alive(there["parent"]))


def test_a_launcher_that_ends_has_no_servers_any_more(runs: Runs) -> None:
    runs.start("a").wait(HANGS_SEC)
    server = runs.report("a")["parent"]
    runs.servers.close()
    assert not has_files(server), "it is waited for"
    wait_for(lambda: not alive(server))
    runs.servers = ForkServers()


def test_a_killed_server_takes_its_run_along_and_the_next_run_starts_anew(runs: Runs) -> None:
    run = runs.start("a", wait=True)
    server = runs.report("a")["parent"]
    os.kill(server, signal.SIGKILL)
    assert run.wait(HANGS_SEC) == -signal.SIGKILL
    wait_for(lambda: not alive(runs.report("a")["pid"]))
    assert runs.start("b").wait(HANGS_SEC) == 3
    assert runs.report("b")["parent"] not in (server, os.getpid())


def test_a_worker_whose_server_still_imports_can_be_stopped_and_takes_that_server_along(runs: Runs) -> None:
    runs.hold()
    run, other = runs.start("a"), runs.start("b")
    server = runs.importing()
    assert stopped(run)
    assert not alive(server)
    assert run.wait(HANGS_SEC) == -signal.SIGTERM
    runs.held.unlink()
    assert other.wait(HANGS_SEC) == 3
    assert runs.report("b")["parent"] == os.getpid(), "the other run has started anew"
    assert not (runs.root / "a/report.json").exists()


def test_a_worker_that_has_not_begun_has_nothing_to_save(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "SAVING_SEC", HANGS_SEC)
    runs.hold()
    run = runs.start("a")
    runs.importing()
    interruption.let_save(run, runs.root / "a", RunConfig(gpus=0, checkpoint_every_steps=5), signal.SIGTERM)
    assert run.wait(HANGS_SEC) == -signal.SIGTERM
    runs.held.unlink()
    assert not (runs.root / "a/report.json").exists()


def test_a_server_skips_a_run_that_was_stopped_before_it_could_be_forked(runs: Runs) -> None:
    runs.hold()
    first, second = runs.start("a"), runs.start("b")
    runs.importing()
    assert stopped(second)
    third = runs.start("c")
    runs.held.unlink()
    assert [first.wait(HANGS_SEC), third.wait(HANGS_SEC)] == [3, 3]
    assert runs.report("a")["parent"] == runs.report("c")["parent"] == runs.importing()
    assert not (runs.root / "b/report.json").exists()


# Starts the server of a real worker, and never asks how it goes.
STARTER = """
import os, sys, time
from tracking.jobs.handover import ForkServers, fork_or_start
servers = ForkServers()
argv = [sys.executable, "-P", "-m", "trainers.loop.worker", sys.argv[1]]
environ = {**os.environ, "TIMETRIAL_LAUNCHER": str(os.getpid())}
worker = fork_or_start(servers.forks, argv, environ, [1], [], None, None)
time.sleep(3600)
"""


HANGS = "import os, time\nfrom pathlib import Path\nPath(__file__).with_name('pid').write_text(str(os.getpid()))\n"


def test_a_server_whose_import_hangs_ends_with_the_killed_supervisor_that_started_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "")
    (folder / run_folder.CONFIG).write_text("gpus: 0\nmodel: {workload: 'trainers.models:NONE'}\n")
    (tmp_path / "path").mkdir()
    (tmp_path / "path/torch.py").write_text(HANGS + "time.sleep(3600)\n")
    path = os.pathsep.join([str(tmp_path / "path"), environment()["PYTHONPATH"]])
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(folder)], env=environment(PYTHONPATH=path))
    pid = tmp_path / "path/pid"
    wait_for(lambda: pid.exists() and pid.read_text())
    server = int(pid.read_text())
    assert alive(server)
    starter.kill()
    starter.wait()
    wait_for(lambda: not alive(server))
