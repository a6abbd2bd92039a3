"""Runs launch.py in a fork of a process that has its imports behind it: the same code, without 20 s of start per run.

What a start of Python itself decides (a variable that its libraries read as they load, a limit, a signal to a whole
group) is left to real processes: `commands.start`, and the tests of stops, kills and resumes.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What launch.py, a worker, the mirror and the plots import, in the order in which they do.
IMPORTS = [
    "launch", "tracking.mirror", "tracking.jobs", "tracking.report", "matplotlib.pyplot",
    "mlflow", "mlflow.store.tracking.sqlalchemy_store", "alembic.command", "alembic.autogenerate",
    "trainers.loop.train", "torch.distributed.launcher.api",
]  # fmt: skip
starting = threading.Lock()
WORKER = ["-P", "-m", "trainers.loop.worker"]
# Libraries read these as they load. Several processes then share the cores as torchrun's do.
LOADED_WITH = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "100000", "MLFLOW_LOGGING_LEVEL": "CRITICAL"}


def possible() -> bool:
    """Whether a fork tells the same as a process of its own: not where a GPU is, whose driver survives no fork."""
    return not Path("/dev/nvidiactl").exists()


def run(arguments: list[str], cwd: Path, environ: dict[str, str], output: Path, timeout_sec: float) -> int:
    """launch.py's exit code; what it and its workers print goes to `output`. Raises subprocess.TimeoutExpired."""
    with starting:
        process = server().Process(target=enter, args=(arguments, str(cwd), environ, str(output)))
        process.start()
    process.join(timeout_sec)
    if process.exitcode is None:
        process.kill()
        raise subprocess.TimeoutExpired(arguments, timeout_sec, output.read_bytes())
    code = process.exitcode
    process.close()
    return code


@cache
def server() -> ForkServerContext:
    """One process a test session that imports once, and forks from then on."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTS)
    before = {name: os.environ.get(name) for name in LOADED_WITH}
    os.environ.update(LOADED_WITH)
    try:
        warm: ForkServerProcess = context.Process(target=int)
        warm.start()
        warm.join()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    return context


def enter(arguments: list[str], cwd: str, environ: dict[str, str], output: str) -> None:
    """The fork's whole life."""
    become(environ, os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), cwd)
    subprocess.Popen = ForkedWorker  # type: ignore[assignment,misc]
    sys.argv = [str(ROOT / "launch.py"), *arguments]
    leave(lambda: runpy.run_path(sys.argv[0], run_name="__main__"))


def become(environ: Mapping[str, str], output: int, cwd: str, keep: Sequence[int] = ()) -> None:
    """Give this process the variables, streams, folder and import path that a new one would have."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    # One that holds a lock would go on holding it.
    for descriptor in {int(name.name) for name in Path("/proc/self/fd").iterdir()} - {0, 1, 2, *keep}:
        with suppress(OSError):
            os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, "rw"[number > 0], closefd=False) for number in range(3))


def leave(main: Callable[[], object]) -> None:
    """Call `main` and end the process as Python would, with its exit handlers."""
    code: Any = 0
    try:
        main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


class ForkedWorker(subprocess.Popen):  # type: ignore[type-arg]
    """A Popen that forks where the command is a training's worker; every other command is a process of its own."""

    def _execute_child(self, *arguments: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(start).bind(*arguments).arguments
        command = list(asked["args"]) if not isinstance(asked["args"], str) else [asked["args"]]
        if command[:4] != [sys.executable, *WORKER]:
            start(*arguments)
            return
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            return
        os.setsid()
        become(asked["env"], asked["c2pwrite"], str(Path.cwd()), keep=asked["pass_fds"])
        sys.argv = ["worker", *command[4:]]
        leave(lambda: runpy.run_module(WORKER[-1], run_name="__main__", alter_sys=True))
