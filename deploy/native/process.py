"""A service as a process group, which is found again and ended as a whole, even after its first process has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from deploy.native.settings import write_private

STOP_TIMEOUT_SEC = 30


class ProcessGroup:
    """A process group; `file` keeps its number and the start of its first process, in clock ticks since boot."""

    def __init__(self, file: Path, log: Path) -> None:
        self._file = file
        self.log = log

    def start(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=environ, cwd=folder, umask=0o077, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        write_private(self._file, f"{process.pid} {start_time(process.pid)}")
        return process

    def leader_pid(self) -> int:
        """The pid of the first process; 0 if it has ended."""
        group, started = self._read()
        with suppress(OSError):
            if group and start_time(group) == started:
                return group
        return 0

    def stop(self) -> None:
        """End every process of the group, by SIGTERM, then by SIGKILL."""
        group, started = self._read()
        for signum in (signal.SIGTERM, signal.SIGKILL) if group else ():
            for pid in members(group, started):
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
            if wait_until(lambda: not any(members(group, started)), STOP_TIMEOUT_SEC):
                break
        self._file.unlink(missing_ok=True)

    def _read(self) -> tuple[int, int]:
        with suppress(OSError, ValueError):
            group, started = map(int, self._file.read_text().split())
            return group, started
        return 0, 0


def members(group: int, started: int) -> Iterator[int]:
    """This user's processes in a group, except those older than its first one: the number may be reused."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            pid = int(path.name)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # else a child of this process would stay a zombie
            is_ours = path.stat().st_uid == os.geteuid() and int(stat_fields(pid)[2]) == group
            if is_ours and start_time(pid) >= started:
                yield pid


def start_time(pid: int) -> int:
    """The start of a process in clock ticks since boot, which is unique together with the pid.

    Raises OSError if the process has ended, also for a zombie.
    """
    fields = stat_fields(pid)
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return int(fields[19])


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: state, parent, group, session, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def wait_until(condition: Callable[[], object], timeout_sec: float) -> bool:
    deadline = time.monotonic() + timeout_sec
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
