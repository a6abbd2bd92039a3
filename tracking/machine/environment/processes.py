"""Processes and CPU times of the machine, from /proc (see proc(5))."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

TICKS_PER_SEC = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
KERNEL = 2  # kthreadd, the parent of the kernel's threads
PR_SET_CHILD_SUBREAPER = 36  # The number is from linux/prctl.h.
INITIAL_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h


@dataclass(frozen=True)
class Process:
    """A process. `cpu_sec` is its own CPU time; `total_sec` includes children that it has waited for."""

    pid: int
    name: str
    parent: int
    session: int
    started: int  # in ticks since boot; unique together with the pid
    cpu_sec: float
    total_sec: float


def parse_stat(text: str) -> Process:
    """The process of a /proc/PID/stat. Raises ValueError or IndexError for malformed text."""
    before, _, after = text.rpartition(")")  # a name may contain anything, also parentheses
    pid, _, name = before.partition(" (")
    fields = after.split()  # beginning with the file's third field
    user, system, waited_user, waited_system = (int(field) / TICKS_PER_SEC for field in fields[11:15])
    seconds = user + system
    return Process(
        int(pid), name, int(fields[1]), int(fields[3]), int(fields[19]), seconds, seconds + waited_user + waited_system
    )


# Before Python: whether this process was a shell that ran other commands, and when this module was imported.
_RAN_OTHERS, _IMPORTED, _CPU_SEC = getrusage(RUSAGE_CHILDREN).ru_minflt > 0, time.monotonic(), time.process_time()
LONG_SHELL_SEC = 10.0


def begun() -> float:
    """The start of this process on the monotonic clock, since the wall clock may have been set; now, if not known.

    `sh -c "prepare; python launch.py"` executes Python in the shell's process, which starts with `prepare`. If such a
    shell ran for over LONG_SHELL_SEC, Python's own start is returned, estimated from its CPU time.
    """
    with suppress(OSError, ValueError, IndexError):
        ticks = parse_stat(Path("/proc/self/stat").read_text()).started
        created = time.monotonic() - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / TICKS_PER_SEC)
        of_python = _IMPORTED - _CPU_SEC
        return of_python if _RAN_OTHERS and of_python - created > LONG_SHELL_SEC else created
    return time.monotonic()


def parse_cpu_sec(text: str, cpus: Collection[int]) -> tuple[float, float]:
    """CPU seconds since boot that these CPUs spent on processes, and that a hypervisor took, from /proc/stat.

    Interrupts count in neither, since most come from the run's own files and messages.
    """
    busy = stolen = 0
    names = {f"cpu{number}" for number in cpus}
    for line in text.splitlines():
        name, *fields = line.split()
        if name in names:
            user, nice, system = map(int, fields[:3])
            busy += user + nice + system
            stolen += int(fields[7]) if len(fields) > 7 else 0
    return busy / TICKS_PER_SEC, stolen / TICKS_PER_SEC


def threads_each(number: int) -> int:
    """How many threads each of `number` processes can run on its share of the cores."""
    return max(1, len(os.sched_getaffinity(0)) // number)


def parse_quota(text: str) -> float:
    """The cores that cgroup v2's cpu.max allows; infinite without a limit."""
    quota, period = text.split()
    return math.inf if quota == "max" else int(quota) / int(period)


def quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float:
    """The cores that this process may use by the limits of its cgroup and its parents; infinite without a limit."""
    with suppress(OSError, ValueError, StopIteration):
        path = next(line[4:] for line in membership.read_text().splitlines() if line.startswith("0::/"))
        folders = [root / path, *(root / path).parents]
        files = [folder / "cpu.max" for folder in folders if folder.is_relative_to(root)]
        return min((parse_quota(file.read_text()) for file in files if file.exists()), default=math.inf)
    return math.inf


def oom_kills(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """How many processes of this cgroup the kernel has killed for lack of memory; 0 if it is not known.

    cgroup v2 counts them in memory.events, v1 in memory.oom_control. A container may see its own cgroup as the root.
    """
    with suppress(OSError, ValueError):
        paths = dict(line.split(":", 2)[1:] for line in membership.read_text().splitlines())
        for kind, folder, name in (("memory", root / "memory", "memory.oom_control"), ("", root, "memory.events")):
            path = paths.get(kind, "/").lstrip("/")
            for file in (folder / path / name, folder / name):
                if file.exists():
                    return int(dict(line.split() for line in file.read_text().splitlines()).get("oom_kill", 0))
    return 0


def running(proc: Path = Path("/proc")) -> dict[int, Process]:
    """The visible processes by pid."""
    by_pid = {}
    for entry in os.scandir(proc):
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):  # It has just ended.
                process = parse_stat(Path(entry.path, "stat").read_text())
                by_pid[process.pid] = process
    return by_pid


def words(proc: Path, pid: int) -> list[str]:
    """The words of a process's command line; empty if it has ended."""
    with suppress(OSError):
        return (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def contained(proc: Path = Path("/proc")) -> bool:
    """Whether this process is in its own pid namespace, as in most containers."""
    try:
        return str((proc / "self/ns/pid").readlink()) != INITIAL_NAMESPACE
    except OSError:
        return True


def descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """The pids of these processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    pids: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in pids:
            pids.add(pid)
            todo += children.get(pid, ())
    return pids


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, such as daemons (a subreaper, prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def kill_other_sessions(patience_sec: float) -> None:
    """Kill this process's descendants that left its session, and wait for their ends."""
    deadline = time.monotonic() + patience_sec
    while time.monotonic() < deadline:
        visible, own = running(), os.getsid(0)
        roots = [each.pid for each in visible.values() if each.parent == os.getpid() and each.session != own]
        left = [pid for pid in descendants(visible, roots) if not has_ended(pid)]
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def alive(group: int) -> list[int]:
    """The pids of a process group, without zombies."""
    import psutil  # Only here: a worker's environment may lack it.

    pids = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids
