"""The companion processes of a script, and the state that its own process keeps between runs."""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracking.api import script
from tracking.base import installation
from tracking.machine.environment import processes
from tracking.record import node_records

COMPANIONS = installation.module("tracking.jobs.follow.companion_server")
CLOSING_SEC = 2.0
READY_SEC = 20.0  # longest wait for a companion, off the clock


@dataclass
class Companion:
    """The process beside one run. `output` is the reading end of its standard output, which closes when it ends."""

    output: int

    def is_ready(self) -> bool:
        return self._is_readable(READY_SEC) and os.read(self.output, 16) == b"ready\n"

    def has_ended(self) -> bool:
        return self._is_readable(0) and not os.read(self.output, 16)

    def wait(self, timeout_sec: float) -> None:
        """Wait until the companion has ended. Raises TimeoutError."""
        if not (self._is_readable(timeout_sec) and self.has_ended()):
            raise TimeoutError(f"the companion still runs after {timeout_sec} s")

    def _is_readable(self, patience_sec: float) -> bool:
        return bool(select.select([self.output], [], [], patience_sec)[0])


@dataclass
class Companions:
    """The process that forks companions, with this process's end of its socket."""

    process: subprocess.Popen[bytes]
    requests: socket.socket
    pid: int = field(default_factory=os.getpid)  # A fork of the script starts its own.

    def is_usable(self) -> bool:
        return self.pid == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        """Stop forking, at the script's end. Companions keep running."""
        self.requests.close()
        if self.pid == os.getpid():
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSING_SEC)


@dataclass
class ScriptProcess:
    """The state that a training process keeps between runs."""

    last_end: float | None = None  # monotonic time at which the last run ended
    companions: list[Companion] = field(default_factory=list)
    companion_server: Companions | None = None
    printed_report_command: bool = False  # whether the command for a table of the runs was printed
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seconds_since_begin(self, called_at: float) -> float:
        """Seconds since the process started or its last run ended; in a notebook, since `called_at` (monotonic).

        A notebook's kernel may run for hours before it trains, so its run begins with the call of the training.
        """
        begin = processes.begun() if self.last_end is None else self.last_end
        return time.monotonic() - (called_at if script.in_notebook() else begin)

    def start_companion(self, folder: Path, lock: int | None, node: str = "", gpu_uuids: Sequence[str] = ()) -> None:
        """Start a companion and wait until it is ready. Warns if it cannot start.

        On a non-head node it samples the machine and these GPUs. The head node has the run and its `lock`.
        """
        with self._lock:
            for ended in [companion for companion in self.companions if companion.has_ended()]:
                os.close(ended.output)
                self.companions.remove(ended)
            output, companions_end = os.pipe()
            companion = Companion(output)
            try:
                descriptors = [companions_end] if lock is None else [companions_end, lock]
                self._send_request(folder, descriptors, node, gpu_uuids)
            except OSError as error:
                os.close(output)
                warnings.warn(f"timetrial: the run is neither uploaded nor sampled: {error}", stacklevel=2)
                return
            finally:
                os.close(companions_end)
            if not companion.is_ready():
                log = folder / node_records.companion_log(node)
                warnings.warn(f"timetrial: the companion did not start. Next: see {log}", stacklevel=2)
            self.companions.append(companion)

    def _send_request(self, folder: Path, descriptors: list[int], node: str, gpu_uuids: Sequence[str]) -> None:
        # With torchrun, the script's siblings belong to the run too, so the root is their common parent.
        root = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else os.getpid()
        environ = companions_environment()
        request: dict[str, Any] = {
            "folder": str(folder.absolute()),
            "pid": os.getpid(),
            "root": root,
            "cwd": str(Path.cwd()),
        }
        request |= {"node": node, "gpu_uuids": list(gpu_uuids)}
        message = json.dumps(request | {"environ": environ}).encode()
        if self.companion_server is not None and self.companion_server.is_usable():
            with suppress(OSError):  # It may have just been killed.
                socket.send_fds(self.companion_server.requests, [message], descriptors)
                return
        if self.companion_server is not None:
            self.companion_server.close()
        self.companion_server = start_companion_server(folder / node_records.companion_log(node), environ)
        socket.send_fds(self.companion_server.requests, [message], descriptors)


THIS_PROCESS = ScriptProcess()


def companions_environment() -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    folders = [str(installation.SEARCH_FOLDER), environ.get("PYTHONPATH", "")]
    return environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def start_companion_server(log_path: Path, environ: dict[str, str]) -> Companions:
    """Start the process that forks companions. Its output goes to the log of the first run. Raises OSError."""
    our_end, their_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    our_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with their_end, log_path.open("ab") as log:
        # In a session of its own, since Ctrl-C is for the script.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", COMPANIONS, str(their_end.fileno())], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=log, env=environ, start_new_session=True, pass_fds=[their_end.fileno()],
        )  # fmt: skip
    companions = Companions(process, our_end)
    atexit.register(companions.close)
    return companions
