"""Workers of a sweep, forked from a process that has imported PyTorch and Lightning.

Such a server (trainers/loop/worker/fork_server.py) is a worker that stops before it reads its run. It has the command,
variables and folder that a new worker would have; another combination gets its own server. A fork takes the cores, NUMA
nodes and GPUs of its supervisor. The server keeps no state of a run. If it cannot be reached, a new process is started
instead.
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
KILL_SEC = 5.0  # longest wait for a killed server's end
servers: list[subprocess.Popen[bytes]] = []  # servers that this process started; they outlive it
REPORTED = "said"  # file of a launch that has printed why its workers are not forked
BROKEN = ".broken"  # suffix of a file: the server of this name ended before it forked


Start = Callable[[int], "subprocess.Popen[bytes]"]  # starts a new process with this output


@dataclass(frozen=True)
class StartedServer:
    """A server that was started for a worker. If it ends before it forks, the file `broken` is made."""

    process: subprocess.Popen[bytes]
    broken: Path


class ForkedWorker:
    """A forked worker, with the part of subprocess.Popen's interface that its supervisor uses.

    The server sends the process id, and later the exit code. It ends the worker when this end of the channel closes. If
    the server ends before it has forked, `start` starts a new process with `output`.
    """

    stdin = None

    def __init__(
        self, channel: socket.socket, start: Start, output: int, on_start: Callable[[int], object],
        server: StartedServer | None,
    ) -> None:  # fmt: skip
        self.returncode: int | None = None
        self._channel, self._start, self._on_start, self._server = channel, start, on_start, server
        self._withdrawn = False
        self._output = os.dup(output)  # The caller closes `output`.
        self._pid: int | None = None
        self._substitute: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; waits until the server has forked the worker."""
        while self._pid is None:
            self._receive(None)
        return self._pid

    def withdraw(self) -> bool:
        """Withdraw the request. Returns True if the worker has not begun.

        A server that was started for this worker is killed: it still imports and has no forks. Any other server skips
        the request.
        """
        if self._pid is None and self.returncode is None:
            self._withdrawn = True
            with suppress(OSError):  # The server has ended.
                self._channel.shutdown(socket.SHUT_RD)  # From now on a fork cannot report its start.
            self._receive(0.0)
        return self._pid is None

    def poll(self) -> int | None:
        self._receive(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code and return it. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._receive(left)
        return self.returncode

    def _receive(self, within_sec: float | None) -> None:
        """Handle a message of the server, if one comes within this time."""
        if self._substitute:
            with suppress(subprocess.TimeoutExpired):
                self.returncode = self._substitute.wait(within_sec)
            return
        if self.returncode is not None or not select.select([self._channel], [], [], within_sec)[0]:
            return
        try:
            message = self._channel.recv(MAX_BYTES)
        except OSError:
            message = b""
        kind, _, number = message.decode().partition(" ")
        if kind == BEGAN:
            self._pid = int(number)
            self._on_start(self._pid)
            os.close(self._output)
        elif self._withdrawn and self._pid is None:
            self._channel.close()
            os.close(self._output)
            self.returncode = -signal.SIGTERM
            if self._server:
                self._server.process.kill()
                with suppress(subprocess.TimeoutExpired):  # It still holds the lock of the run's folder.
                    self._server.process.wait(KILL_SEC)
        elif self._pid is None:
            self._channel.close()
            if self._server and kind != STALE:
                self._server.broken.touch()
            self._substitute = self._start(self._output)
            self._pid = self._substitute.pid
            os.close(self._output)
        else:  # If the server was killed, so were its forks.
            self.returncode = int(number) if kind == ENDED else -signal.SIGKILL
            self._channel.close()


Started = subprocess.Popen[bytes] | ForkedWorker


def fork_or_start(
    forks: Forks, argv: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int],
    imports_by: Sequence[object], start: Start, on_start: Callable[[int], object],
) -> Started:  # fmt: skip
    """Have a server fork the worker `argv`, or start it by `start` if no server can be reached.

    `descriptors` are its output and other inherited ones. `imports_by` holds what its imports depend on besides the
    command; it is the same for all workers of a server. `on_start` is called with the process id.
    """
    path = forks.folder / key_of(argv, imports_by)
    broken = path.with_suffix(BROKEN)
    if broken.exists():
        return start(descriptors[0])
    request = {"run": argv[-1], "environ": dict(environ), **asdict(Inheritance.own())}
    try:
        with locked(path):  # The starter of a server sends the first request, and other supervisors use that server.
            channel, server = connected(path), None
            if channel is None:
                server = StartedServer(start_server(forks, path, argv, environ), broken)
                channel = connected(path)
        if channel is None:
            return start(descriptors[0])
    except OSError as error:
        report_once(forks, error)
        return start(descriptors[0])
    try:
        socket.send_fds(channel, [json.dumps(request).encode()], list(descriptors))
    except OSError:  # The server has just ended.
        channel.close()
        return start(descriptors[0])
    return ForkedWorker(channel, start, descriptors[0], on_start, server)


def report_once(forks: Forks, error: OSError) -> None:
    """Print why workers are not forked, once in a launch, while its folder exists."""
    with suppress(OSError):
        (forks.folder / REPORTED).touch(exist_ok=False)
        print(f"note: workers are not forked, so each imports PyTorch anew: {error}", file=sys.stderr, flush=True)


def key_of(argv: Sequence[str], imports_by: Sequence[object]) -> str:
    """The name of a worker's server: a digest of the worker's command, its folder and `imports_by`."""
    words = json.dumps([list(argv[:-1]), str(Path.cwd()), list(imports_by)])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this path: one process at a time. Raises OSError."""
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def address(path: Path) -> Iterator[str]:
    """An address of the socket at `path` that fits AF_UNIX's 107 bytes, however long TMPDIR is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(path: Path) -> socket.socket | None:
    """A channel to the server at `path`; None if it has ended."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with address(path) as short:
            channel.connect(short)
    except (FileNotFoundError, ConnectionRefusedError):
        channel.close()
        return None
    return channel


def start_server(
    forks: Forks, path: Path, argv: Sequence[str], environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start a server that listens at `path`; it answers requests once its imports are done. Raises OSError."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with address(path) as short:
            listener.bind(short)
        listener.listen()
        options = [SERVE, str(listener.fileno()), str(forks.line), argv[-1]]
        server = subprocess.Popen(
            [*argv[:-1], *options], env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=[listener.fileno(), forks.line],
        )  # fmt: skip
    servers.append(server)
    return server
