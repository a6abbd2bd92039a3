"""Runs launch.py, or another script, in a fork of a process that has its imports behind it.

It is the same code, without the seconds that a start takes.

What a start of Python itself decides (a variable that its libraries read as they load, a signal to a whole group) is
left to real processes: `commands.start`, with which tests/launch/test_launch.py stops and kills runs.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# What launch.py, a worker, the mirror and the plots import, in the order in which they do.
IMPORTS = [
    "launch", "tracking.store.mirror", "tracking.jobs", "tracking.analysis.report", "matplotlib.pyplot",
    "mlflow", "mlflow.store.tracking.sqlalchemy_store", "alembic.command", "alembic.autogenerate",
    "trainers.loop.train", "torch.distributed.launcher.api", "tests.support.frozen",
]  # fmt: skip
asking = threading.Lock()  # A start asks all others whether they have ended, and only one may hear a fork's exit code.
LAUNCH = str(ROOT / "launch.py")
MODULES = ("trainers.loop.worker", "tracking.jobs.node.__main__", "tests.support.quick_supervisor")
SHARED = "PYTEST_FORKS_FROM"  # the address of a server that pytest's first process started for its workers
CLIENT: Any = forkserver._forkserver  # by which this process has its server fork
# Libraries read these as they load. Several processes then share the cores as torchrun's do.
LOADED_WITH = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "100000", "MLFLOW_LOGGING_LEVEL": "CRITICAL"}


def possible() -> bool:
    """Whether a fork tells the same as a process of its own: not where a GPU is, whose driver survives no fork."""
    return not Path("/dev/nvidiactl").exists()


class Forked:
    """A script under way, with what tests use of a subprocess.Popen. With `max_file_bytes` its files cannot grow.

    With `apart` its standard error is not part of its output.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environ: Mapping[str, str],
        max_file_bytes: int = 0,
        script: str = LAUNCH,
        apart: bool = False,
    ) -> None:
        self._streams = [self._file() for _ in range(1 + apart)]
        asked = ([script, *arguments], str(cwd), dict(environ), [*map(str, self._streams)], max_file_bytes)
        with asking:
            self._process = server().Process(target=enter, args=asked)
            self._process.start()
        assert self._process.pid
        self.args, self.pid = asked[0], self._process.pid

    def _file(self) -> Path:
        descriptor, name = tempfile.mkstemp()
        os.close(descriptor)
        weakref.finalize(self, Path(name).unlink, missing_ok=True)
        return Path(name)

    @property
    def returncode(self) -> int | None:
        with asking:
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # It has ended meanwhile.
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""
        connection.wait([self._process.sentinel], timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0, self._streams[0].read_bytes())
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it and its workers have printed, and what of it was apart."""
        self.wait(timeout)
        output, *errors = (path.read_text() for path in self._streams)
        return output, "".join(errors)


@cache
def server() -> ForkServerContext:
    """One process a test session that imports once, and forks from then on."""
    context = multiprocessing.get_context("forkserver")
    if address := os.environ.get(SHARED):
        CLIENT._forkserver_address = address
        CLIENT._forkserver_alive_fd = os.open(os.devnull, os.O_WRONLY)  # Each fork is handed it.
        CLIENT.ensure_running = resource_tracker.ensure_running
        return context
    begin_server()
    warm: ForkServerProcess = context.Process(target=int)
    warm.start()
    warm.join()
    return context


def begin_server() -> None:
    """Start the process above, which goes on importing by itself."""
    forkserver.set_forkserver_preload(IMPORTS)
    before = {name: os.environ.get(name) for name in LOADED_WITH}
    os.environ.update(LOADED_WITH)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def share() -> None:
    """Have pytest's workers, which are started after this, fork from one server, which imports while they collect."""
    # Python 3.14 gives each server a key, which its clients would need too.
    if not possible() or hasattr(CLIENT, "_forkserver_authkey"):
        return
    kept, nowhere = [os.dup(number) for number in (1, 2)], os.open(os.devnull, os.O_WRONLY)
    try:  # What its forks print is no part of pytest's output.
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        begin_server()
    finally:
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
        for descriptor in (*kept, nowhere):
            os.close(descriptor)
    os.environ[SHARED] = CLIENT._forkserver_address


def enter(command: list[str], cwd: str, environ: dict[str, str], streams: list[str], max_file_bytes: int) -> None:
    """The fork's whole life."""
    if max_file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # It would be cut short as well, in the cache of all tests.
        sys.dont_write_bytecode = True
    opened = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in streams]
    become(environ, (opened[0], opened[-1]), cwd)
    subprocess.Popen = ForkedWorker  # type: ignore[misc]
    run(command)


def become(
    environ: Mapping[str, str], streams: tuple[int, int], cwd: str, keep: Sequence[int] = (), given: int = -1
) -> None:
    """Give this process the variables, streams, folder and import path that a new one would have; `given` is read."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGINT):  # A new one has no handlers.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    os.dup2(given if given >= 0 else os.open(os.devnull, os.O_RDONLY), 0)
    kept = [os.dup(stream) for stream in streams]  # one may be the other's number
    for place, stream in enumerate(kept, 1):
        os.dup2(stream, place)
    # One that holds a lock would go on holding it.
    for descriptor in {int(name.name) for name in Path("/proc/self/fd").iterdir()} - {0, 1, 2, *keep}:
        with suppress(OSError):
            os.close(descriptor)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    # A process that is killed has printed whole lines, as Python's own stderr does.
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))


def leave(main: Callable[[], object]) -> None:
    """Call `main` and end the process as Python would, but for the handlers of `atexit`."""
    code: Any = 0
    try:
        main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # ends the threads of pools and waits for all others
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def run(command: Sequence[str]) -> None:
    """Be what a command of Python is, `python SCRIPT ...` or `python -P -m MODULE ...`, until its end."""
    if command[0] == "-P":
        sys.argv = ["worker", *command[3:]]
        leave(lambda: runpy.run_module(command[2], run_name="__main__", alter_sys=True))
    sys.argv = list(command)
    leave(lambda: runpy.run_path(command[0], run_name="__main__"))


def forked() -> int:
    """os.fork. In its hooks Python would swallow an exception of a signal handler, which a new process cannot have.

    Another thread may have received a signal that the main one handles, so the handlers only note it meanwhile.
    """
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    pid = os.fork()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for taken in came if pid else []:
        signal.raise_signal(taken)
    return pid


class ForkedWorker(subprocess.Popen):  # type: ignore[type-arg]
    """A Popen that forks where the command is a worker, a supervisor, or this script again, as Lightning starts ranks.

    Any other is a process of its own.
    """

    def _execute_child(self, *arguments: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(start).bind(*arguments).arguments
        command = list(asked["args"]) if not isinstance(asked["args"], str) else [asked["args"]]
        # A supervisor's Python stands behind a shell that looks whether it is there.
        command = command[command.index(sys.executable) + 1 :] if sys.executable in command else []
        ours = command[:2] == ["-P", "-m"] and command[2] in MODULES
        if not ours and command[:1] != sys.argv[:1]:
            start(*arguments)
            return
        self.pid = forked()
        if self.pid:
            self._child_created = True
            return
        if asked["start_new_session"]:
            os.setsid()
        streams = (max(asked["c2pwrite"], 1), asked["errwrite"] if asked["errwrite"] >= 0 else 2)
        become(asked["env"], streams, str(Path.cwd()), asked["pass_fds"], asked["p2cread"])
        run(command)
