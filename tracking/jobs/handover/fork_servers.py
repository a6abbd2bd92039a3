"""Where the workers of a search are forked from: processes that have their imports behind them, one for each kind of
worker, and that end with the launcher.

A launcher makes the folder where they are met, and a pipe that it alone holds open. Supervisors start them and talk to
them (tracking/jobs/handover/forked_worker.py).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

SERVE = "--fork"  # makes a server of a worker's command; behind it stand the descriptors of its socket and of its pipe
# What a fork and its server tell the supervisor, with a process id and with an exit code.
BEGAN, ENDED = "began", "ended"
STALE = "stale"  # what a server answers whose sources have changed since it imported them


@dataclass(frozen=True)
class Forks:
    """The folder of the servers' sockets, and the reading end of the pipe whose end is theirs, too."""

    folder: Path
    line: int


class ForkServers:
    """The servers of one launch."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="timetrial-forks-")  # of mode 700: nobody else can ask them
        line, self._held = os.pipe()
        self.forks = Forks(Path(self._folder.name), line)

    def close(self) -> None:
        """End them."""
        os.close(self._held)
        os.close(self.forks.line)
        self._folder.cleanup()
