"""The servers that fork a sweep's workers: processes that have finished their imports.

Each serves one command and one environment of workers. Jobs with these share it, whatever their model and GPUs.

A launcher makes the folder of their sockets, and a socket pair by which each side sees the other exit. Supervisors
start the servers and talk to them (tracking/jobs/handover/forked_worker.py).
"""

from __future__ import annotations

import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SERVE = "--fork"  # turns a worker's command into a server's; the descriptors of its socket and lifeline follow
BEGAN, ENDED = "began", "ended"  # messages to the supervisor: a fork's process id, its exit code
GONE_SEC = 5.0  # longest wait for the servers' end
STALE = "stale"  # a server's answer if its sources have changed since it imported them


@dataclass(frozen=True)
class Forks:
    """The folder of the servers' sockets, and a descriptor that shows them when their launcher exits."""

    folder: Path
    line: int


class ForkServers:
    """The servers of one launch."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="timetrial-forks-")  # mode 700: private
        self._held, self._line = socket.socketpair()
        self.forks = Forks(Path(self._folder.name), self._line.fileno())

    def end(self) -> None:
        """Have each server exit once its last fork has ended."""
        self._held.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the servers, and wait until they are gone."""
        self.end()
        self._line.close()
        self._held.settimeout(GONE_SEC)
        with self._held, suppress(OSError):
            self._held.recv(1)  # It returns when all processes have closed the other end.
        self._folder.cleanup()
