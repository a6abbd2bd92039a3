"""Finds co-tenants of a run: other processes on its cores and GPUs, which slow it down unnoticed.

A run's own processes are its launcher, the launcher's descendants, and the sessions that these have opened. Processes
in the launcher's terminal or process group may belong to another run.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tracking.machine.environment import nvml, processes

Process = processes.Process
CPU_THRESHOLD = 0.10  # share of the run's cores; less may be a desktop or a monitor
NAMED = 3  # most processes that are named
NAMED_CORES = 0.05  # least mean use of a named process

# From GPU UUIDs to the pids that compute on them, by nvidia-smi's index.
ComputeProcesses = Callable[[Sequence[str]], Mapping[int, Sequence[int]]]


class Moment(NamedTuple):
    """Counters at one time, in CPU seconds: busy, stolen by the hypervisor, used by the run. `running` is by pid."""

    clock_sec: float
    busy_sec: float
    stolen_sec: float
    run_sec: float
    running: dict[int, Process]


class CoTenants:
    """Watches for co-tenants. Create it before the run's worker starts. `tag` describes those found so far.

    A process with one of `marks` in its command line belongs to the run, with its descendants. `known` describes
    co-tenants that the caller knows. `proc`, `launcher`, `clock` and `compute_processes` are for tests.
    """

    def __init__(
        self, gpu_uuids: Sequence[str], proc: Path = Path("/proc"), launcher: int | None = None,
        clock: Callable[[], float] = time.monotonic, compute_processes: ComputeProcesses | None = None,
        marks: Sequence[str] = (), known: str = "",
    ) -> None:  # fmt: skip
        self._uuids = list(gpu_uuids)
        self._proc = proc
        self._launcher = launcher or os.getpid()
        self._clock = clock
        self._compute_processes = compute_processes or compute_processes_of
        self._contained = processes.contained(proc)
        self._cpus = os.sched_getaffinity(0)
        self._quota = processes.quota() if proc == Path("/proc") else math.inf
        self._marks = set(marks)
        self._known = known
        self.roots: set[int] = set()  # further pids of the run, with their descendants
        self._marked: dict[tuple[int, int], bool] = {}  # by pid and start
        self._sessions: set[int] = set()  # sessions that the run has opened
        self._used: dict[str, float] = {}  # CPU seconds of foreign processes, by name
        self._watched_sec = self._taken_sec = self._stolen_sec = 0.0
        self._gpus: dict[int, dict[int, str]] = {}  # names of foreign processes by pid, by the GPU's index
        self._before: Moment | None = None
        self._already = {pid for pids in self._on_gpus().values() for pid in pids}
        with suppress(OSError, ValueError):  # Without /proc nothing will be found.
            self.sample()

    @property
    def cores(self) -> float:
        """The cores available to the run, by its CPU affinity and its container's quota."""
        return min(len(self._cpus), self._quota)

    def sample(self) -> dict[str, float]:
        """The shares of the run's cores that the run and others used since the last sample.

        `run_cpu_percentage`, `neighbours_cpu_percentage`, and `run_busiest_process_cores` of the run's busiest process.
        Foreign processes on its GPUs are noted. Raises OSError without /proc.
        """
        running = processes.running(self._proc)
        run_pids = self._run_pids(running)
        self._note_gpus(running, run_pids)
        now, (busy, stolen) = self._clock(), processes.parse_cpu_sec((self._proc / "stat").read_text(), self._cpus)
        run_sec = sum(running[pid].total_sec for pid in run_pids if pid in running)
        before, self._before = self._before, Moment(now, busy, stolen, run_sec, running)
        if before is None or now <= before.clock_sec:
            return {}
        if self._marks and run_sec < before.run_sec:
            return {}  # A container has ended. Its CPU time since the last sample would count as foreign.
        passed = now - before.clock_sec
        used = max(0.0, run_sec - before.run_sec)  # negative after the end of a process of the run
        others = min(len(self._cpus) * passed, max(0.0, busy - before.busy_sec - used))
        taken = self._cpu_sec_taken(others, self._visible(before.running, running, run_pids), passed)
        self._watched_sec += passed
        self._taken_sec += taken
        self._stolen_sec += stolen - before.stolen_sec
        available = self.cores * passed
        shares = {"run_cpu_percentage": used / available, "neighbours_cpu_percentage": taken / available}
        percentages = {key: 100 * min(1.0, share) for key, share in shares.items()}
        return percentages | {"run_busiest_process_cores": self._busiest(before.running, running, run_pids) / passed}

    def tag(self) -> str:
        """Co-tenants above the threshold: `cpu: 93 % of 2 cores (stress); gpu 0: 1 process`; empty without any.

        It may be called while another thread samples.
        """
        takers = [self._known] if self._known else []
        available = self.cores * self._watched_sec
        share = min(1.0, (self._taken_sec + self._stolen_sec) / available) if available else 0.0
        if share > CPU_THRESHOLD:
            names = self._names()
            if self._stolen_sec > self._taken_sec:
                names = ["stolen by the host", *names]
            names_text = f" ({', '.join(names)})" if names else ""
            takers.append(f"cpu: {100 * share:.0f} % of {self.cores:g} core{'s' * (self.cores != 1)}{names_text}")
        for index, pids in sorted(self._gpus.items()):
            names = sorted({name for name in list(pids.values()) if name})
            names_text = f" ({', '.join(names)})" if names else ""
            takers.append(f"gpu {index}: {len(pids)} process{'es' * (len(pids) > 1)}{names_text}")
        return "; ".join(takers)

    def _names(self) -> list[str]:
        """The names of the foreign processes that computed most."""
        most = sorted(self._used.items(), key=lambda item: -item[1])[:NAMED]
        return [name for name, sec in most if sec > NAMED_CORES * self._watched_sec]

    def _run_pids(self, running: dict[int, Process]) -> set[int]:
        """The pids of the run, and of the kernel's threads, which work for all."""
        marked = [pid for pid, process in running.items() if self._marks and self._is_marked(process)]
        pids = processes.descendants(running, [self._launcher, *self.roots, *marked])
        launcher_session = running[self._launcher].session if self._launcher in running else 0
        self._sessions |= {running[pid].session for pid in pids if pid in running} - {launcher_session}
        pids |= {process.pid for process in running.values() if process.session in self._sessions}
        return pids if self._contained else pids | processes.descendants(running, [processes.KERNEL])

    def _is_marked(self, process: Process) -> bool:
        key = (process.pid, process.started)
        if key not in self._marked:
            self._marked[key] = not self._marks.isdisjoint(processes.words(self._proc, process.pid))
        return self._marked[key]

    def _note_gpus(self, running: dict[int, Process], run_pids: set[int]) -> None:
        for index, pids in self._on_gpus().items():
            for pid in pids:
                # In a container the driver's pids may be the host's. Processes from before the worker are foreign.
                foreign = pid in self._already if self._contained else pid in running and pid not in run_pids
                if foreign:
                    name = "" if self._contained else running[pid].name
                    self._gpus.setdefault(index, {})[pid] = name

    def _visible(self, before: dict[int, Process], running: dict[int, Process], run_pids: set[int]) -> float:
        """CPU seconds of visible foreign processes since the last sample."""
        total = 0.0
        for pid, process in running.items():
            earlier = before.get(pid)
            if pid in run_pids or (earlier and earlier.started != process.started):
                continue
            sec = process.cpu_sec - (earlier.cpu_sec if earlier else 0.0)
            self._used[process.name] = self._used.get(process.name, 0.0) + sec
            total += sec
        return total

    def _cpu_sec_taken(self, others: float, visible: float, sec: float) -> float:
        """CPU seconds that others took from the run.

        With a quota below the number of cores, processes in the same container use up the quota. Those outside take
        from the run only if all cores are busy.
        """
        if self._quota >= len(self._cpus):
            return others
        sharing = min(visible, others) if self._contained else 0.0
        return sharing + max(0.0, others - sharing - (len(self._cpus) - self._quota) * sec)

    def _busiest(self, before: dict[int, Process], running: dict[int, Process], run_pids: set[int]) -> float:
        """CPU seconds of the run's busiest process since the last sample."""
        used = []
        for pid in run_pids - processes.descendants(running, [processes.KERNEL]):
            if process := running.get(pid):
                earlier = before.get(pid)
                same = earlier is not None and earlier.started == process.started
                used.append(process.cpu_sec - (earlier.cpu_sec if earlier and same else 0.0))
        return max(used, default=0.0)

    def _on_gpus(self) -> Mapping[int, Sequence[int]]:
        try:
            return self._compute_processes(self._uuids) if self._uuids else {}
        except Exception:  # without a driver, or without an answer; various exceptions
            return {}


def compute_processes_of(uuids: Sequence[str]) -> dict[int, list[int]]:
    """The pids that compute on these GPUs, by index. Raises ImportError and NVMLError."""
    import pynvml

    pids_by_gpu: dict[int, list[int]] = {}
    pynvml.nvmlInit()
    try:
        for uuid in uuids:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            pids_by_gpu.setdefault(nvml.index_of(pynvml, handle), []).extend(process.pid for process in running)
    finally:
        pynvml.nvmlShutdown()
    return pids_by_gpu
