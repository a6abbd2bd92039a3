"""Workers forked from a server: each is as a new one would be, and a new one is started where the server fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from conf.schema import RunConfig
from tests.support.commands import HANGS_SEC, environment
from tests.support.folders import make_folder, wait_for
from tracking.jobs.handover import ForkedWorker, ForkServers, Inheritance, Started, fork_or_start, forked_worker
from tracking.jobs.node import interruption, worker_process
from tracking.jobs.node.machine_shares import MPOL_BIND
from tracking.record import run_folder

pytestmark = pytest.mark.slow

# In place of trainers.loop.worker: it imports what is told, and its run says what it found and leaves it otherwise.
WORKER = """
import json, os, random, sys, time
from pathlib import Path

from tracking.jobs.handover import SERVE, Inheritance
from trainers.loop.worker import fork_server
from trainers.loop.worker.signal_deaths import die_with

def imports(like):
    if os.environ.get("BROKEN"):
        raise ImportError("so")
    import own
    os.environ["SET_BY_IMPORTS"] = "1"
    Path(__file__).with_name("importing").write_text(str(os.getpid()))
    while Path(__file__).with_name("held").exists():
        time.sleep(0.01)
    if "LIGHT" not in os.environ:
        import numpy, torch

fork_server.import_all = imports
run, collector = Path(sys.argv[1]), None
if sys.argv[1] == SERVE:
    die_with(os.getppid())
    served = fork_server.serve(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    if served is None:
        sys.exit()
    run, collector = served
report = {
    "pid": os.getpid(), "parent": os.getppid(), "left": os.environ.get("LEFT"), "folder": os.getcwd(),
    "set_by_imports": os.environ.get("SET_BY_IMPORTS"),
    "words": sys.argv[1:], "random": random.random(), "session": os.getsid(0),
    "launcher": os.environ["TIMETRIAL_LAUNCHER"], "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "alike": [
        open("/proc/self/status").read().partition("SigBlk")[2].partition("CapInh")[0],
        open("/proc/self/limits").read(), os.getpriority(0, 0), sys.flags, os.readlink("/proc/self/fd/0"),
        os.getpgrp() == os.getpid(), [str(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        len(os.listdir("/proc/self/task")),
    ],
    "sockets": collector and collector.finish()["host"]["sockets"],
    "inherited": vars(Inheritance.own()), "modules": "left_behind" in sys.modules,
    "descriptors": sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if int(name) > 2
                          and os.path.exists(f"/proc/self/fd/{name}")),
}
if "LIGHT" not in os.environ:
    import numpy, torch
    report |= {
        "dtype": str(torch.get_default_dtype()), "seed": torch.initial_seed(), "threads": torch.get_num_threads(),
        "numpy": numpy.random.random(),
    }
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(report["threads"] + 1)
    torch.manual_seed(7); numpy.random.seed(7)
(run / "report.json.new").write_text(json.dumps(report))
os.rename(run / "report.json.new", run / "report.json")
random.seed(7)
os.environ["LEFT"] = "behind"
os.chdir("/")
sys.modules["left_behind"] = sys
print("these are its words", flush=True)
while (run / "wait").exists():
    time.sleep(0.01)
sys.exit(3)
"""


class Runs:
    """Runs of one launch in a folder, each asked for as a supervisor does."""

    def __init__(self, root: Path) -> None:
        self.root, self.held = root, root / "held"
        self.servers = ForkServers()
        self.started: list[Started] = []
        self.fresh: list[subprocess.Popen[bytes]] = []
        self.environ = environment(PYTHONPATH=os.pathsep.join([str(root), environment()["PYTHONPATH"]]))
        (root / "worker.py").write_text(WORKER)
        (root / "own.py").write_text("")

    def start(self, name: str, wait: bool = False, torch: bool = False, **variables: str) -> Started:
        run = self.root / name
        run.mkdir()
        if wait:
            (run / "wait").touch()
        argv = [sys.executable, str(self.root / "worker.py"), str(run)]
        environ = {**self.environ, "TIMETRIAL_LAUNCHER": name, **({} if torch else {"LIGHT": "1"}), **variables}

        def fresh(output: int) -> subprocess.Popen[bytes]:
            self.fresh.append(subprocess.Popen(argv, env=environ, stdout=output, stderr=output, start_new_session=True))
            return self.fresh[-1]

        with (run / "worker.log").open("wb") as log:
            self.started.append(
                fork_or_start(
                    self.servers.forks, argv, environ, [log.fileno()], [variables, torch], fresh, lambda pid: None
                )
            )
        return self.started[-1]

    def hold(self) -> None:
        """Have servers import until `self.held` is gone."""
        self.held.touch()

    def importing(self) -> int:
        """The process id of the server that imports, once there is one."""
        path = self.root / "importing"
        wait_for(lambda: path.exists() and path.read_text())
        return int(path.read_text())

    def report(self, name: str) -> dict[str, Any]:
        path = self.root / name / "report.json"
        wait_for(path.exists)
        read: dict[str, Any] = json.loads(path.read_text())
        return read

    def close(self) -> None:
        for process in [*self.fresh, *forked_worker.servers]:
            process.kill()
            process.wait()
        self.servers.close()
        forked_worker.servers.clear()
        for worker in self.started:
            worker.wait(HANGS_SEC)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    made.close()


def test_each_run_is_as_a_new_one_whatever_the_one_before_has_left(runs: Runs) -> None:
    codes = [runs.start(name, torch=True).wait(HANGS_SEC) for name in ("a", "b")]
    assert codes == [3, 3]
    assert not runs.fresh
    first, second = runs.report("a"), runs.report("b")
    assert first["parent"] == second["parent"], "one server, which has imported once"
    assert first["pid"] != second["pid"]
    for each, name in ((first, "a"), (second, "b")):
        assert each["session"] == each["pid"]
        assert (each["launcher"], each["words"]) == (name, [str(runs.root / name)])
        assert (each["dtype"], each["left"], each["modules"]) == ("torch.float32", None, False)
        assert each["set_by_imports"] == "1"
        assert each["descriptors"] == []
    assert first["threads"] == second["threads"]
    assert first["seed"] == second["seed"] != 7
    assert first["folder"] == second["folder"] != "/"
    assert first["random"] != second["random"]
    assert first["numpy"] != second["numpy"]
    assert (runs.root / "b/worker.log").read_text() == "these are its words\n"


def test_a_fork_has_the_signals_limits_and_streams_of_a_new_process(runs: Runs) -> None:
    assert runs.start("forked").wait(HANGS_SEC) == 3
    assert not runs.fresh
    assert runs.start("new", BROKEN="1").wait(HANGS_SEC) == 3
    assert len(runs.fresh) == 1
    assert runs.report("forked")["alike"] == runs.report("new")["alike"]


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


def has_files(pid: int) -> bool:
    """Whether a process has files open: one that ends has closed them a moment before it is gone."""
    try:
        return bool(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return False


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it takes two cores")
def test_a_fork_has_the_cores_memory_and_gpus_of_its_supervisor_whatever_those_of_the_server_are(runs: Runs) -> None:
    whole = Inheritance.own()
    share = Inheritance(whole.cores[:1], whole.memory and (MPOL_BIND, [1, *[0] * 15]))
    try:
        for name, own in (("a", share), ("b", whole), ("c", share)):
            own.take()
            runs.environ["CUDA_VISIBLE_DEVICES"] = f"GPU-{name}"
            assert runs.start(name).wait(HANGS_SEC) == 3
            own_words = json.loads(json.dumps(vars(Inheritance.own())))
            assert (runs.report(name)["inherited"], runs.report(name)["gpus"]) == (own_words, f"GPU-{name}")
    finally:
        whole.take()
    assert len({runs.report(name)["parent"] for name in "abc"}) == 1
    assert not runs.fresh, "one server has forked them all"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_server_takes_its_run_along_and_the_next_run_starts_anew(runs: Runs) -> None:
    run = runs.start("a", wait=True)
    server = runs.report("a")["parent"]
    os.kill(server, signal.SIGKILL)
    assert run.wait(HANGS_SEC) == -signal.SIGKILL
    wait_for(lambda: not alive(runs.report("a")["pid"]))
    assert runs.start("b").wait(HANGS_SEC) == 3
    assert runs.report("b")["parent"] not in (server, os.getpid())


def stopped(worker: Started) -> bool:
    """Whether the worker can be stopped, as a supervisor does it."""
    stopping = threading.Thread(target=worker_process.stop, args=([worker],), daemon=True)
    stopping.start()
    stopping.join(HANGS_SEC)
    return not stopping.is_alive()


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


def test_the_first_runs_fingerprint_is_begun_while_its_server_imports(runs: Runs) -> None:
    command, asked = runs.root / "bin/lscpu", runs.root / "asked"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\ntouch {asked}\necho 'Socket(s): 77'\n")
    command.chmod(0o755)
    runs.environ["PATH"] = f"{command.parent}:{runs.environ['PATH']}"
    runs.hold()
    first, second = runs.start("a"), runs.start("b")
    runs.importing()
    wait_for(asked.exists)
    runs.held.unlink()
    assert [first.wait(HANGS_SEC), second.wait(HANGS_SEC)] == [3, 3]
    assert (runs.report("a")["sockets"], runs.report("b")["sockets"]) == (77, None)


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


def test_a_server_whose_sources_have_changed_waits_for_its_forks(runs: Runs) -> None:
    run = runs.start("a", wait=True)
    server = runs.report("a")["parent"]
    (runs.root / "own.py").write_text("changed = True")
    os.utime(runs.root / "own.py", (1, 1))
    assert runs.start("b").wait(HANGS_SEC) == 3
    assert runs.report("b")["parent"] == os.getpid()
    assert runs.start("c").wait(HANGS_SEC) == 3
    assert runs.report("c")["parent"] not in (os.getpid(), server), "another server, of the new source"
    assert run.poll() is None
    (runs.root / "a/wait").unlink()
    assert run.wait(HANGS_SEC) == 3
    wait_for(lambda: not alive(server))


def test_a_source_that_is_edited_while_its_server_imports_makes_the_run_a_new_process(runs: Runs) -> None:
    runs.hold()
    run = runs.start("a")
    server = runs.importing()
    (runs.root / "own.py").write_text("changed = True")
    os.utime(runs.root / "own.py", (1, 1))
    runs.held.unlink()
    assert run.wait(HANGS_SEC) == 3
    assert runs.report("a")["parent"] == os.getpid()
    assert runs.start("b").wait(HANGS_SEC) == 3
    assert runs.report("b")["parent"] not in (os.getpid(), server), "another server, of the new source"


def test_a_source_that_is_edited_before_its_server_has_noted_it_makes_the_run_a_new_process(runs: Runs) -> None:
    """The edit comes after the file was read, and before the server has looked at it."""
    edited = WORKER.replace("\ndef imports", "\nopen(__file__, 'a').write('# edited')\n\ndef imports")
    assert edited != WORKER
    (runs.root / "worker.py").write_text(edited)
    time.sleep(0.05)
    assert runs.start("a").wait(HANGS_SEC) == 3
    assert runs.report("a")["parent"] == os.getpid()


def test_the_folder_for_temporary_files_may_have_a_long_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("long" * 40)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    runs = Runs(tmp_path)
    try:
        assert runs.start("a").wait(HANGS_SEC) == 3
        assert not runs.fresh
    finally:
        runs.close()


def test_a_launch_says_once_why_its_workers_are_not_forked(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refused(*asked: object) -> None:
        raise PermissionError(1, "no sockets here")

    monkeypatch.setattr(forked_worker, "start_server", refused)
    assert [runs.start(name).wait(HANGS_SEC) for name in ("a", "b")] == [3, 3]
    assert capfd.readouterr().err.count("no sockets here") == 1


def test_where_a_server_cannot_import_or_its_sources_have_changed_the_run_is_a_new_process(runs: Runs) -> None:
    assert runs.start("a", BROKEN="1").wait(HANGS_SEC) == 3
    assert runs.report("a")["parent"] == os.getpid()
    assert runs.start("b", BROKEN="1").wait(HANGS_SEC) == 3
    assert [process.pid for process in runs.fresh] == [runs.report(name)["pid"] for name in ("a", "b")]
    assert runs.start("c").wait(HANGS_SEC) == 3
    (runs.root / "own.py").write_text("changed = True")
    os.utime(runs.root / "own.py", (1, 1))
    assert runs.start("d").wait(HANGS_SEC) == 3
    assert runs.report("d")["parent"] == os.getpid()
    assert runs.start("e").wait(HANGS_SEC) == 3
    assert runs.report("e")["parent"] not in (os.getpid(), runs.report("c")["parent"]), (
        "another server, of the new source"
    )
