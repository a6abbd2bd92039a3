"""Runs that are forked from a server, whose worker says how it found its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

from tests.support.commands import HANGS_SEC, environment
from tests.support.folders import wait_for
from tracking.jobs.handover import ForkServers, Started, fork_or_start, forked_worker
from tracking.jobs.node import worker_process

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
    return "COMPILES" in os.environ

def imports_later():
    while not Path(__file__).with_name(os.environ["COMPILES"]).joinpath("report.json").exists():
        time.sleep(0.01)
    Path(__file__).with_name("imported later").write_text(str(os.getpid()))

fork_server.import_all, fork_server.import_compiler = imports, imports_later
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


def has_files(pid: int) -> bool:
    """Whether a process has files open: one that ends has closed them a moment before it is gone."""
    try:
        return bool(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return False


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stopped(worker: Started) -> bool:
    """Whether the worker can be stopped, as a supervisor does it."""
    stopping = threading.Thread(target=worker_process.stop, args=([worker],), daemon=True)
    stopping.start()
    stopping.join(HANGS_SEC)
    return not stopping.is_alive()
