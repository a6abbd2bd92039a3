"""Workers of a sweep, forked from a process that has imported PyTorch, Lightning and the workload.

Such a server (trainers/loop/worker/fork_server.py) is a worker that has stopped before it reads its run. It has the
command, variables and folder that a new worker would have: for other ones, another server is started. A fork gets the
cores, NUMA nodes and GPUs of its supervisor when it begins. The server keeps no state of a run, since each is a fork of
its own. Where it cannot be reached, a new process is started as ever.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tracking.jobs.handover.fork_servers import BEGAN, ENDED, SERVE, STALE, Forks
from tracking.jobs.handover.inheritance import Inheritance

MAX_BYTES = 64  # of an answer: a process id, or an exit code
KILL_SEC = 5.0  # how long a killed server may take to be gone
servers: list[subprocess.Popen[bytes]] = []  # those started here, which outlive this process
SAID = "said"  # marks a launch that has said why its workers are new processes
BROKEN = ".broken"  # marks a kind of worker whose server ended before it forked


Fresh = Callable[[int], "subprocess.Popen[bytes]"]  # starts a new process with this output


@dataclass(frozen=True)
class OwnServer:
    """A server that was started for a worker, and the file that marks its kind where it ends before it forks."""

    process: subprocess.Popen[bytes]
    broken: Path


class ForkedWorker:
    """A forked worker with the used part of subprocess.Popen's interface.

    The server sends the process id and then the exit code, and ends the worker when this end of the channel closes. If
    the server ends before it has forked, `fresh` starts a new process with `output`.
    """

    stdin = None

    def __init__(
        self, channel: socket.socket, fresh: Fresh, output: int, told: Callable[[int], object], own: OwnServer | None
    ) -> None:  # fmt: skip
        self.returncode: int | None = None
        self._channel, self._fresh, self._told, self._own = channel, fresh, told, own
        self._withdrawn = False
        self._output = os.dup(output)  # The caller closes its own.
        self._pid: int | None = None
        self._instead: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Waits until the server has forked it."""
        while self._pid is None:
            self._hear(None)
        return self._pid

    def withdraw(self) -> bool:
        """Take the request back unless the worker has begun; whether that was in time.

        A server that was started for this worker is killed: it imports, and has no forks yet. Any other one skips the
        request.
        """
        if self._pid is None and self.returncode is None:
            self._withdrawn = True
            with suppress(OSError):  # The server has ended.
                self._channel.shutdown(socket.SHUT_RD)  # From now on a fork cannot say that it begins.
            self._hear(0.0)
        return self._pid is None

    def poll(self) -> int | None:
        self._hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._hear(left)
        return self.returncode

    def _hear(self, within_sec: float | None) -> None:
        """Take in what the server says within this time."""
        if self._instead:
            with suppress(subprocess.TimeoutExpired):
                self.returncode = self._instead.wait(within_sec)
            return
        if self.returncode is not None or not select.select([self._channel], [], [], within_sec)[0]:
            return
        try:
            words = self._channel.recv(MAX_BYTES)
        except OSError:
            words = b""
        what, _, number = words.decode().partition(" ")
        if what == BEGAN:
            self._pid = int(number)
            self._told(self._pid)
            os.close(self._output)
        elif self._withdrawn and self._pid is None:
            self._channel.close()
            os.close(self._output)
            self.returncode = -signal.SIGTERM
            if self._own:
                self._own.process.kill()
                with suppress(subprocess.TimeoutExpired):  # It still holds the lock of the run's folder.
                    self._own.process.wait(KILL_SEC)
        elif self._pid is None:
            self._channel.close()
            if self._own and what != STALE:
                self._own.broken.touch()
            self._instead = self._fresh(self._output)
            self._pid = self._instead.pid
            os.close(self._output)
        else:  # A server that was killed has taken its forks along.
            self.returncode = int(number) if what == ENDED else -signal.SIGKILL
            self._channel.close()


Started = subprocess.Popen[bytes] | ForkedWorker


def fork_or_start(
    forks: Forks, argv: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int], alike: Sequence[object],
    fresh: Fresh, told: Callable[[int], object],
) -> Started:  # fmt: skip
    """Have a server fork the worker `argv`, or start it by `fresh` if no server can be reached.

    `descriptors` are its output and other inherited ones. `alike` holds what its imports depend on beside its command;
    workers of one server have it in common. `told` is called with its process id.
    """
    path = forks.folder / key_of(argv, alike)
    broken = path.with_suffix(BROKEN)
    if broken.exists():
        return fresh(descriptors[0])
    told_run = {"run": argv[-1], "environ": dict(environ), "last": forks.last, **asdict(Inheritance.own())}
    request = json.dumps(told_run).encode()
    try:
        with alone(path):  # Who starts a server is the first to ask it, and others ask the same one.
            channel, own = connected(path), None
            if channel is None and not forks.last:
                own = OwnServer(serve(forks, path, argv, environ), broken)
                channel = connected(path)
        if channel is None:
            return fresh(descriptors[0])
    except OSError as error:
        say_once(forks, error)
        return fresh(descriptors[0])
    try:
        socket.send_fds(channel, [request], list(descriptors))
    except OSError:  # The server has just ended.
        channel.close()
        return fresh(descriptors[0])
    return ForkedWorker(channel, fresh, descriptors[0], told, own)


def say_once(forks: Forks, error: OSError) -> None:
    """Say why workers are not forked, unless another supervisor of this launch has said it, or its folder is gone."""
    with suppress(OSError):
        (forks.folder / SAID).touch(exist_ok=False)
        print(f"workers of this launch are not forked, and import PyTorch each: {error}", file=sys.stderr, flush=True)


def key_of(argv: Sequence[str], alike: Sequence[object]) -> str:
    """Names a kind of worker: its command and folder, and what else it depends on."""
    words = json.dumps([list(argv[:-1]), str(Path.cwd()), list(alike)])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Nobody else is in such a block for this path. Raises OSError."""
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def address(path: Path) -> Iterator[str]:
    """A name for a socket at `path` that is short enough for AF_UNIX (107 bytes), whatever TMPDIR is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(path: Path) -> socket.socket | None:
    """A channel to the server at `path`; None if it has ended."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with address(path) as there:
            channel.connect(there)
    except (FileNotFoundError, ConnectionRefusedError):
        channel.close()
        return None
    return channel


def serve(forks: Forks, path: Path, argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a server that is met at `path`; it takes what it is asked for when its imports are done. Raises OSError."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with address(path) as here:
            listener.bind(here)
        listener.listen()
        asked = [SERVE, str(listener.fileno()), str(forks.line), argv[-1]]
        server = subprocess.Popen(
            [*argv[:-1], *asked], env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=[listener.fileno(), forks.line],
        )  # fmt: skip
    servers.append(server)
    return server
