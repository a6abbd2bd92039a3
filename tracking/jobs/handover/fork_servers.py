"""The servers that fork a sweep's workers: processes that have finished their imports, one for each kind of worker.

A launcher makes the folder of their sockets, and a socket pair that shows each side the other's end. Supervisors start
the servers and talk to them (tracking/jobs/handover/forked_worker.py).
"""

from __future__ import annotations

import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SERVE = "--fork"  # makes a server of a worker's command; behind it stand the descriptors of its socket and of its pipe
# What a fork and its server tell the supervisor, with a process id and with an exit code.
BEGAN, ENDED = "began", "ended"
GONE_SEC = 5.0  # how long a launcher waits for its servers to be gone
STALE = "stale"  # what a server answers whose sources have changed since it imported them


@dataclass(frozen=True)
class Forks:
    """The folder of the servers' sockets, and a descriptor through which they see their launcher's end.

    `last`: no worker of this kind comes after this one, so its server ends with it.
    """

    folder: Path
    line: int
    last: bool = False


class ForkServers:
    """The servers of one launch."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="timetrial-forks-")  # of mode 700: nobody else can ask them
        self._held, self._line = socket.socketpair()
        self.forks = Forks(Path(self._folder.name), self._line.fileno())

    def close(self) -> None:
        """End the servers, and wait until they are gone."""
        self._line.close()
        self._held.shutdown(socket.SHUT_WR)
        self._held.settimeout(GONE_SEC)
        with self._held, suppress(OSError):
            self._held.recv(1)  # It returns when nobody holds the other end any more.
        self._folder.cleanup()
