"""A supervisor's process, started ahead of its run and told of the run over a socket.

So its imports delay no worker. The socket is also the supervisor's lifeline: it learns of its launcher's end by it
(tracking/jobs/node/lifeline.py). The lock of the run's folder travels in the same message, so the folder always has an
owner.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from conf.schema import RunConfig
from tracking.base import installation

SUPERVISOR = installation.module("tracking.jobs.node.__main__")
MAX_BYTES = 65536  # of a message


@dataclass(frozen=True)
class Assignment:
    """A run's folder, the descriptor of its lock, and what this launch says in place of the folder's config.

    `started` is when the run's command began, in seconds of the monotonic clock. `environment` holds the variables of
    the run's share of the machine; without them it has the whole machine.
    """

    folder: Path
    lock: int
    started: float
    timeout_sec: float | None
    system_metrics_interval_sec: float
    environment: dict[str, str] = field(default_factory=dict)


class SupervisorProcess:
    """A supervisor in a session of its own, so that Ctrl-C reaches its launcher alone."""

    def __init__(self) -> None:
        search = filter(None, [str(installation.SEARCH_FOLDER), os.environ.get("PYTHONPATH")])
        self._assigned = False
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, held_back():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", SUPERVISOR], stdin=theirs.fileno(), start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
            )  # fmt: skip

    def assign(self, run: Assignment) -> None:
        """Hand a run over; a supervisor that has died takes none, as its exit code then says."""
        words = json.dumps({**asdict(run), "folder": str(run.folder)})
        self._assigned = True
        with suppress(OSError):
            socket.send_fds(self._channel, [words.encode()], [run.lock])

    def tell(self, signum: int) -> None:
        """Send it a signal, if it has not ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signum)

    def dismiss(self) -> None:
        """End it if it was given no run."""
        if self._assigned:
            return
        self._channel.close()
        self.tell(signal.SIGKILL)
        self.process.wait()

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        code = self.process.poll()
        if code is not None:
            self._channel.close()
        return code


@contextmanager
def held_back() -> Iterator[None]:
    """Start processes that get a signal to stop only when they can handle it (tracking/jobs/node/signals.py)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ahead(config: RunConfig) -> Iterator[SupervisorProcess | None]:
    """A supervisor for the first run of a launch, where it is to run here; it ends with the block if it got none."""
    elsewhere = config.cluster.kind != "none" or config.node_rank
    process = None if elsewhere or config.dry_run else SupervisorProcess()
    try:
        yield process
    finally:
        if process:
            process.dismiss()


def received() -> Assignment | None:
    """The run that this process is to supervise, from standard input; None where its launcher ended before it had one.

    Standard input stays open: it is the lifeline.
    """
    with socket.socket(fileno=os.dup(0)) as channel:
        words, descriptors, _, _ = socket.recv_fds(channel, MAX_BYTES, 1)
    if not words:
        return None
    told = json.loads(words)
    [lock] = descriptors
    os.set_inheritable(lock, False)
    return Assignment(**{**told, "folder": Path(told["folder"]), "lock": lock})
