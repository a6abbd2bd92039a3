"""Compiles the parts of a step in several processes: training and evaluation on each shape of batches.

PyTorch traces a graph and generates its code in one Python thread, for up to half a minute, while other cores idle. So
helper processes (worker/compile_part.py) compile parts on the same GPU. Each process takes the next part that no
other has taken, and the run's process then loads what the helpers kept.

Nothing compiled runs meanwhile: kernels are timed against each other when they first run, and that needs the GPU alone.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tracking.base import installation
from tracking.machine.environment import processes
from trainers.loop.warmup import kept_traces
from trainers.workload import Batch, TrialModule

Part = Callable[[], object]
CORES_EACH = 4  # cores for each process, with those that its compiler starts
MOST_HELPERS = 5
LONGEST_WAIT_SEC = 120.0
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
WAITS_SEC: list[float] = []  # durations for which this process waited for helpers


def parts(
    batches: Sequence[Batch], train: Callable[[Batch], object], evaluate: Callable[[Batch], object] | None
) -> list[Part]:
    """Return the parts of a step in the order in which they are taken: training takes longer, so it comes first."""
    return [partial(call, batch) for call in (train, evaluate) if call for batch in batches]


def take_parts(waiting: int, taken: int, parts: Sequence[Part]) -> None:
    """Compile the parts that no other process takes, and run them without compiled code.

    `waiting` and `taken` are ends of pipes: the number of each part is read from the first by one process, which then
    writes its process id to the second.
    """
    with kept_traces.only_kept():
        while number := os.read(waiting, 1):
            os.write(taken, f"{os.getpid()}\n".encode())
            parts[number[0]]()


def number_of_helpers(module: TrialModule, num_parts: int) -> int:
    """Return how many helpers the cores allow; 0 on a CPU, where C++ compilers use all cores.

    A module needs them only if several of its functions keep traces.
    """
    num_kept = sum(isinstance(value, kept_traces.KeptTraces) for value in vars(module).values())
    if module.device.type != "cuda" or num_kept < 2:
        return 0
    return max(0, min(MOST_HELPERS, num_parts - 1, math.floor(num_cores() / CORES_EACH) - 1))


def num_cores() -> float:
    return min(processes.threads_each(1), processes.quota())


def compile_parts(run_dir: Path, parts: Sequence[Part], num_batches: int, num_helpers: int) -> None:
    """Compile all parts in this process and in up to `num_helpers` helpers.

    A part may be left to the warm-up, if a process lacked memory that others took, failed, or took too long.
    """
    with numbers_of(parts) as waiting, pipe() as (started, taken):
        helpers: list[subprocess.Popen[bytes]] = []
        try:
            with suppress(OSError):
                for _ in range(num_helpers):
                    words = [
                        str(run_dir),
                        str(waiting),
                        str(taken),
                        str(num_batches),
                        str(len(parts)),
                        str(os.getpid()),
                    ]
                    helpers.append(started_helper(words, (waiting, taken), num_helpers + 1))
            try:
                take_parts(waiting, taken, parts)
            except Exception as error:
                logging.getLogger(__name__).info("compiled later: %s: %s", type(error).__name__, error)
            wait_for(helpers, started)
        finally:
            for helper in helpers:  # Those that have taken no part may still be importing.
                helper.kill()
                helper.wait()


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def numbers_of(parts: Sequence[Part]) -> Iterator[int]:
    """Yield the end of a pipe that holds the number of each part as a byte. Whoever reads a number takes that part."""
    waiting, numbers = os.pipe()
    os.write(numbers, bytes(range(len(parts))))
    os.close(numbers)
    try:
        yield waiting
    finally:
        os.close(waiting)


def started_helper(words: list[str], descriptors: tuple[int, int], num_processes: int) -> subprocess.Popen[bytes]:
    # PyTorch's number of threads stays as it is here: guards of a kept trace compare it.
    environment = {THREADS: str(max(1, math.floor(num_cores() / num_processes)))} | os.environ
    command = [sys.executable, "-P", "-m", installation.module("trainers.loop.worker.compile_part"), *words]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=descriptors)


def wait_for(helpers: Sequence[subprocess.Popen[bytes]], started: int) -> None:
    """Wait, up to LONGEST_WAIT_SEC, for the helpers that have taken a part: `started` has their process ids."""
    began = time.monotonic()
    takers = {int(pid) for pid in os.read(started, 65_536).split()}  # This process has taken one at least.
    for helper in helpers:
        if helper.pid in takers:
            with suppress(subprocess.TimeoutExpired):
                helper.wait(max(0.0, began + LONGEST_WAIT_SEC - time.monotonic()))
    if helpers:
        WAITS_SEC.append(time.monotonic() - began)
