"""What a launcher starts before it reads the request: a supervisor, and the server that forks its first worker.

Both import while Hydra composes the jobs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tracking.jobs.handover.fork_servers import ForkServers
from tracking.jobs.handover.forked_worker import key_of, start_server
from tracking.jobs.handover.supervisor_process import SupervisorProcess, supervisors_environ

# Words of a command line that starts no run on this machine.
NO_RUN_HERE = re.compile(
    r"(-h|-c|-i|-sc|--help|--version|--cfg|--info|--hydra-help|--shell-completion)(=|$)"
    r"|\+{0,2}(dry_run|cluster|node_rank)\b"
)
# Words of a command line whose first worker is not forked, or by another Python.
OTHER_WORKER = re.compile(r"\+{0,2}(model=program$|nodes=|stack[=.])")


class Ahead:
    """A supervisor for the first run, and the launch's fork servers, of which one has begun to import."""

    def __init__(self, words: Sequence[str]) -> None:
        self.supervisor, self.servers = SupervisorProcess(), ForkServers()
        self._server: subprocess.Popen[bytes] | None = None
        if not any(map(OTHER_WORKER.match, words)):
            with suppress(OSError):  # The run then starts a server by itself.
                self._server = start_likely_server(self.servers, supervisors_environ())

    def dismiss(self) -> None:
        """End them if no run was assigned. Otherwise the queue that has the run ends them."""
        if self.supervisor.dismiss() and self._server:  # It may import for seconds before it sees its launcher's end.
            self._server.kill()
            self._server.wait()
        self.servers.close()


@contextmanager
def ahead(words: Sequence[str]) -> Iterator[Ahead | None]:
    """What the first run of a command line needs; None if no run starts on this machine.

    It ends with the block if no run was assigned.
    """
    started = None if any(map(NO_RUN_HERE.match, words)) else Ahead(words)
    try:
        yield started
    finally:
        if started:
            started.dismiss()


def start_likely_server(servers: ForkServers, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the server of most runs: one of our workloads, on this Python. Raises OSError.

    A run that needs another one finds no server of its key, and starts its own.
    """
    from conf.schema import ModelConfig, RunConfig
    from tracking.jobs.worker_command import imports_key, worker_command  # after the supervisor has started

    config = RunConfig(model=ModelConfig(workload="trainers."))
    *argv, _ = (command := worker_command(config, Path(), environ)).argv
    path = servers.forks.folder / key_of(argv, imports_key(1, command.env))
    return start_server(servers.forks, path, argv, command.env)
