"""What decides what a worker imports, and how: workers with equal keys may be forked from one server."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tracking.jobs.worker_command.command import LAUNCHER
from tracking.machine.environment import processes

CORES, MEMORY = "TIMETRIAL_CORES", "TIMETRIAL_NUMA_NODES"  # hold what a job's supervisor may use
# Variables of the run, its share or its launcher that no import of a worker reads.
UNREAD = (LAUNCHER, "TIMETRIAL_SCRATCH", "CUDA_VISIBLE_DEVICES", CORES, MEMORY)
# With one of these set, libraries bind threads to cores as they load, or count them in a way that no fork can change.
THREADING = (
    "OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "GOMP_CPU_AFFINITY", "KMP_AFFINITY",
    "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip


def imports_key(num_processes: int, environ: Mapping[str, str]) -> list[object]:
    """Everything that the imports of a worker of so many processes depend on, except its command and folder.

    A fork is told its cores, its GPUs and the number of its threads.
    """
    variables = sorted((name, value) for name, value in environ.items() if name not in UNREAD)
    if not any(name in environ for name in THREADING):
        return [variables]
    return [variables, processes.threads_each(num_processes), sorted(os.sched_getaffinity(0))]
