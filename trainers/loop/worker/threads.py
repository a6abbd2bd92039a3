"""Sets how many threads a process's libraries use. They read the number as they load.

In a fork of a server (fork_server.py) the libraries have loaded with the number of the server's first run. So its ranks
set their own number in them.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from conf.schema import RunConfig
from tracking.machine.environment import processes

NUMBER, SPINNING = "OMP_NUM_THREADS", "GOMP_SPINCOUNT"
VARIABLES = (NUMBER, SPINNING)  # that limit_threads sets
loaded_with: dict[str, str] = {}  # the values when the libraries of this process, or of its server, loaded
# OpenBLAS under the names that NumPy's wheels and others give it.
SET_OPENBLAS = ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads64_")


def limit_threads(config: RunConfig) -> None:
    """Set each process's number of threads, and how they wait. Call it before PyTorch is imported, and in a fork."""
    # torchrun limits threads too: more threads than cores slow every process down. While another process wants the
    # core, threads that spin for long are many times slower than threads that sleep.
    os.environ.setdefault(NUMBER, str(processes.threads_each(config.processes_per_node())))
    os.environ.setdefault(SPINNING, "100000")
    loaded_with.setdefault(NUMBER, os.environ[NUMBER])


def tell_libraries() -> None:
    """Set the number of threads in this rank's libraries, if they have loaded with another one.

    An agent must not: PyTorch starts threads for it, which ranks that are forked later would lack.
    """
    if os.environ[NUMBER] == loaded_with[NUMBER]:
        return
    import torch

    number = int(os.environ[NUMBER])
    torch.set_num_threads(number)  # tells OpenMP and MKL, too
    for path in {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        for name in SET_OPENBLAS:
            with suppress(AttributeError):
                getattr(library, name)(number)
