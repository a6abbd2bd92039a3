"""A supervisor's process, started before its run; the run is assigned over a socket.

It imports while the launcher still checks the request, so its imports delay no worker. The socket is also its lifeline
(tracking/jobs/handover/lifeline.py). The lock of the run's folder travels in the same message, so the folder always has
an owner.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tracking.base import installation
from tracking.jobs.handover.fork_servers import Forks

SUPERVISOR = installation.module("tracking.jobs.node.__main__")
MAX_BYTES = 65536  # of a message
# Words of a command line that starts no run on this machine.
NO_RUN_HERE = re.compile(
    r"(-h|-c|-i|-sc|--help|--version|--cfg|--info|--hydra-help|--shell-completion)(=|$)"
    r"|\+{0,2}(dry_run|cluster|node_rank)\b"
)


@dataclass(frozen=True)
class Assignment:
    """A run's folder, the descriptor of its lock, and options of this launch that override the folder's config.

    `started` is when the run's command began, in seconds of the monotonic clock. `environment` holds the variables of
    the run's share of the machine; without them it has the whole machine. `forks` are the servers that fork its worker.
    """

    folder: Path
    lock: int
    started: float
    timeout_sec: float | None
    system_metrics_interval_sec: float
    environment: dict[str, str] = field(default_factory=dict)
    forks: Forks | None = None


class SupervisorProcess:
    """A supervisor in a session of its own, so that Ctrl-C reaches only its launcher."""

    def __init__(self) -> None:
        search = filter(None, [str(installation.SEARCH_FOLDER), os.environ.get("PYTHONPATH")])
        self._assigned = False
        self._channel, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end, held_back():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", SUPERVISOR], stdin=child_end.fileno(), start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
            )  # fmt: skip

    def assign(self, run: Assignment) -> None:
        """Hand a run over. If the supervisor has died, nothing happens; its exit code tells."""
        forks = str(run.forks.folder) if run.forks else None
        message = json.dumps({**asdict(run), "folder": str(run.folder), "forks": forks})
        self._assigned = True
        with suppress(OSError):
            socket.send_fds(self._channel, [message.encode()], [run.lock, *([run.forks.line] if run.forks else [])])

    def tell(self, signum: int) -> None:
        """Send it a signal; ignored if it has ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signum)

    def dismiss(self) -> None:
        """End it if no run was assigned."""
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
    """Block stop signals in processes started within, until they can handle them (tracking/jobs/node/signals.py)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ahead(words: Sequence[str]) -> Iterator[SupervisorProcess | None]:
    """A supervisor for the first run of a command line; None if no run starts on this machine.

    It imports while Hydra is imported and composes the jobs. It ends with the block if no run was assigned.
    """
    process = None if any(map(NO_RUN_HERE.match, words)) else SupervisorProcess()
    try:
        yield process
    finally:
        if process:
            process.dismiss()


def received() -> Assignment | None:
    """The run to supervise, read from standard input; None if the launcher ended before it assigned one.

    Standard input stays open: it is the lifeline.
    """
    with socket.socket(fileno=os.dup(0)) as channel:
        message, descriptors, _, _ = socket.recv_fds(channel, MAX_BYTES, 2)
    if not message:
        return None
    values = json.loads(message)
    lock, *lines = descriptors
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    forks = Forks(Path(values["forks"]), lines[0]) if lines else None
    return Assignment(**{**values, "folder": Path(values["folder"]), "lock": lock, "forks": forks})
