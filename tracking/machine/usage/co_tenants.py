"""Who else computes where a run does: other processes on its cores and GPUs make it slow, and it cannot tell.

A run's own processes are its launcher, all that this has started, and the sessions that those have opened. Who shares
the launcher's terminal or process group may be another run.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tracking.machine.environment import nvml, processes

Process = processes.Process
CPU_THRESHOLD = 0.10  # share of the cores that the run could have had; below it, a desktop or a monitor
NAMED = 3  # processes that are named
NAMED_CORES = 0.05  # mean use of those, at least

# Of GPUs given by UUID the processes that compute on them, by the index that nvidia-smi prints.
ComputeProcesses = Callable[[Sequence[str]], Mapping[int, Sequence[int]]]


class CoTenants:
    """Watches from its making on, which is to be before the run's worker starts; `tag` says what was found so far.

    A process that has one of `marks` among the words of its command is the run's too, with all that it has started.
    `known` is what the caller knows of them. `proc`, `launcher`, `clock` and `compute_processes` are for tests.
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
        self.roots: set[int] = set()  # processes that are the run's too, with all that they have started
        self._marked: dict[tuple[int, int], bool] = {}  # by a process's number and start
        self._sessions: set[int] = set()  # those that the run has opened
        self._used: dict[str, float] = {}  # seconds of CPU of each foreign process, by name
        self._watched_sec = self._taken_sec = self._stolen_sec = 0.0
        self._gpus: dict[int, dict[int, str]] = {}  # by the GPU's index: the names of foreign processes, by number
        self._before: tuple[float, float, float, float, dict[int, Process]] | None = None
        self._already = {pid for pids in self._on_gpus().values() for pid in pids}
        with suppress(OSError, ValueError):  # a machine that does not tell: nothing will be found
            self.sample()

    @property
    def cores(self) -> float:
        """The cores that the run can have, of the CPUs that it may use and the quota of its container."""
        return min(len(self._cpus), self._quota)

    def sample(self) -> dict[str, float]:
        """The shares of the run's cores that it and others had since the sample before.

        `run_cpu_percentage`, `neighbours_cpu_percentage`, and `run_busiest_process_cores` of the process of the run
        that computed most; who else computes on its GPUs is noted, too. Raises OSError where there is no /proc.
        """
        there = processes.running(self._proc)
        ours = self._ours(there)
        self._note_gpus(there, ours)
        now, (busy, stolen) = self._clock(), processes.parse_cpu_sec((self._proc / "stat").read_text(), self._cpus)
        own = sum(there[pid].total_sec for pid in ours if pid in there)
        before, self._before = self._before, (now, busy, stolen, own, there)
        if before is None or now <= before[0]:
            return {}
        if self._marks and own < before[3]:
            return {}  # a container has ended, and took along what it had computed since: it would seem another's
        visible = self._visible(before[4], there, ours)
        others = min(len(self._cpus) * (now - before[0]), max(0.0, (busy - before[1]) - max(0.0, own - before[3])))
        taken = self._cpu_sec_taken(others, visible, now - before[0])
        self._watched_sec += now - before[0]
        self._taken_sec += taken
        self._stolen_sec += stolen - before[2]
        there_were = self.cores * (now - before[0])
        used = max(0.0, own - before[3])  # less than nothing where a process of the run's has ended
        shares = {"run_cpu_percentage": used / there_were, "neighbours_cpu_percentage": taken / there_were}
        percentages = {key: 100 * min(1.0, share) for key, share in shares.items()}
        return percentages | {"run_busiest_process_cores": self._busiest(before[4], there, ours) / (now - before[0])}

    def tag(self) -> str:
        """Who took more than may be passed over: `cpu: 93 % of 2 cores (stress); gpu 0: 1 process`; empty for nobody.

        It may be asked while another thread samples.
        """
        takers = [self._known] if self._known else []
        have = self.cores * self._watched_sec
        share = min(1.0, (self._taken_sec + self._stolen_sec) / have) if have else 0.0
        if share > CPU_THRESHOLD:
            names = self._names()
            if self._stolen_sec > self._taken_sec:
                names = ["stolen by the host", *names]
            who = f" ({', '.join(names)})" if names else ""
            takers.append(f"cpu: {100 * share:.0f} % of {self.cores:g} core{'s' * (self.cores != 1)}{who}")
        for index, pids in sorted(self._gpus.items()):
            names = sorted({name for name in list(pids.values()) if name})
            who = f" ({', '.join(names)})" if names else ""
            takers.append(f"gpu {index}: {len(pids)} process{'es' * (len(pids) > 1)}{who}")
        return "; ".join(takers)

    def _names(self) -> list[str]:
        """Of the foreign processes that computed most, the names."""
        most = sorted(self._used.items(), key=lambda item: -item[1])[:NAMED]
        return [name for name, sec in most if sec > NAMED_CORES * self._watched_sec]

    def _ours(self, there: dict[int, Process]) -> set[int]:
        """The run's own processes; and the kernel's threads, which work for all."""
        marked = [pid for pid, process in there.items() if self._marks and self._is_marked(process)]
        ours = processes.descendants(there, [self._launcher, *self.roots, *marked])
        own = there[self._launcher].session if self._launcher in there else 0
        self._sessions |= {there[pid].session for pid in ours if pid in there} - {own}
        ours |= {process.pid for process in there.values() if process.session in self._sessions}
        return ours if self._contained else ours | processes.descendants(there, [processes.KERNEL])

    def _is_marked(self, process: Process) -> bool:
        key = (process.pid, process.started)
        if key not in self._marked:
            self._marked[key] = not self._marks.isdisjoint(processes.words(self._proc, process.pid))
        return self._marked[key]

    def _note_gpus(self, there: dict[int, Process], ours: set[int]) -> None:
        for index, pids in self._on_gpus().items():
            for pid in pids:
                # In a container the driver's numbers may be those outside; who was there before the worker is foreign.
                foreign = pid in self._already if self._contained else pid in there and pid not in ours
                if foreign:
                    name = "" if self._contained else there[pid].name
                    self._gpus.setdefault(index, {})[pid] = name

    def _visible(self, before: dict[int, Process], there: dict[int, Process], ours: set[int]) -> float:
        """Seconds of CPU of the foreign processes that can be seen, since the sample before."""
        total = 0.0
        for pid, process in there.items():
            earlier = before.get(pid)
            if pid in ours or (earlier and earlier.started != process.started):
                continue
            sec = process.cpu_sec - (earlier.cpu_sec if earlier else 0.0)
            self._used[process.name] = self._used.get(process.name, 0.0) + sec
            total += sec
        return total

    def _cpu_sec_taken(self, others: float, visible: float, sec: float) -> float:
        """Seconds of CPU that the run could have had, and others had.

        Where a quota leaves fewer cores than there are, those who are in the same container use it up; those outside
        take away only what is over when all cores are busy.
        """
        if self._quota >= len(self._cpus):
            return others
        sharing = min(visible, others) if self._contained else 0.0
        return sharing + max(0.0, others - sharing - (len(self._cpus) - self._quota) * sec)

    def _busiest(self, before: dict[int, Process], there: dict[int, Process], ours: set[int]) -> float:
        """Seconds of CPU of the process of the run that computed most since the sample before."""
        used = []
        for pid in ours - processes.descendants(there, [processes.KERNEL]):
            if process := there.get(pid):
                earlier = before.get(pid)
                same = earlier is not None and earlier.started == process.started
                used.append(process.cpu_sec - (earlier.cpu_sec if earlier and same else 0.0))
        return max(used, default=0.0)

    def _on_gpus(self) -> Mapping[int, Sequence[int]]:
        try:
            return self._compute_processes(self._uuids) if self._uuids else {}
        except Exception:  # no driver, or one that does not tell, by whatever exception: nobody is known
            return {}


def compute_processes_of(uuids: Sequence[str]) -> dict[int, list[int]]:
    """Of GPUs given by UUID the processes that compute on them, by index. Raises ImportError and what NVML raises."""
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
