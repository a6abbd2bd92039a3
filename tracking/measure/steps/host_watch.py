"""What held up the host of a process: Python's garbage collection, other processes on its core, its quota.

Garbage collections are timed as they happen. The rest are kernel counters, read once a window.
"""

from __future__ import annotations

import gc
import os
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("gc", "queued", "quota", "core")  # the order of `HostWatch.seconds`
THREAD = Path("/proc/thread-self/schedstat")  # ns on a core, ns runnable without a core, time slices
CGROUP = Path("/sys/fs/cgroup")


@dataclass(eq=False)  # compared by identity, so that each watch removes its own callback
class Collections:
    """A callback of the garbage collector that adds up the seconds of its collections."""

    seconds: float = 0.0
    start_sec: float = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self.start_sec = time.perf_counter()
        elif self.start_sec:
            self.seconds += time.perf_counter() - self.start_sec


class HostWatch:
    """`seconds` gives the seconds since the previous call, in the order of NAMES.

    These are: in garbage collections, runnable without a core, stopped by the container's quota, and computing on the
    calling thread. A counter that this machine does not have stays 0.
    """

    def __init__(self, thread: Path = THREAD, cgroup: Path = CGROUP) -> None:
        self._collections = Collections()
        self._files = [_open(thread), _open(cgroup / _control_group() / "cpu.stat") or _open(cgroup / "cpu.stat")]
        gc.callbacks.append(self._collections)
        weakref.finalize(self, _release, self._collections, self._files)  # a training may end by any error
        self._last_counters = self._counters()

    def seconds(self) -> list[float]:
        now = self._counters()
        earlier, self._last_counters = self._last_counters, now
        return [max(0.0, after - before) for after, before in zip(now, earlier, strict=True)]

    def _counters(self) -> tuple[float, ...]:
        thread, quota = (_read(file).split() for file in self._files)
        throttled_usec = quota[quota.index("throttled_usec") + 1] if "throttled_usec" in quota else "0"
        queued_ns = thread[1] if len(thread) == 3 and thread[0] != "0" else "0"  # 0: not counted
        return self._collections.seconds, int(queued_ns) / 1e9, int(throttled_usec) / 1e6, time.thread_time()


def _release(collections: Collections, files: list[int | None]) -> None:
    with suppress(ValueError):
        gc.callbacks.remove(collections)
    for file in files:
        if file is not None:
            os.close(file)


def _open(path: Path) -> int | None:
    with suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _read(file: int | None) -> str:
    with suppress(OSError):
        return os.pread(file, 4096, 0).decode() if file is not None else ""
    return ""


def _control_group() -> str:
    """The process's own control group of version 2; "" without one."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::/"):
                return line.removeprefix("0::/")
    return ""
