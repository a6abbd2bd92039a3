"""Compiles the parts of a step in several processes: training and evaluation on each shape of batches.

PyTorch traces a graph and generates its code in one Python thread. That takes up to half a minute, and other cores
idle. So helper processes (worker/compile_part.py) compile parts on the same GPU. Each process takes the next part that
no other has taken, and the run's process then loads what the helpers kept.

No compiled code runs at that time: PyTorch times kernels when they first run, which needs the GPU for itself.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from tracking.base import installation
from tracking.machine.environment import processes
from trainers.loop.warmup import kept_traces
from trainers.workload import Batch, TrialModule

Part = Callable[[], object]
CORES_PER_PROCESS = 4  # includes the processes that its compiler starts
MOST_HELPERS = 5
EVALUATION = 128  # added to the number of a batch, for the part that evaluates on it
NO_MORE = 255  # in place of a part's number, once for each process
LONGEST_WAIT_SEC = 120.0
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
WAITS_SEC: list[float] = []  # durations for which this process waited for helpers


def parts(
    batches: Sequence[Batch], train: Callable[[Batch], object], evaluate: Callable[[Batch], object] | None
) -> dict[int, Part]:
    """Return the parts of a step by number, in the order in which they are taken: training, which takes longer, first.

    All processes give a part the same number.
    """
    calls = ((0, train), (EVALUATION, evaluate))
    return {first + place: partial(call, batch) for first, call in calls if call for place, batch in enumerate(batches)}


def taken_numbers(waiting: int, taken: int) -> Iterator[int]:
    """Yield the numbers of the parts that no other process takes, as long as there are any.

    `waiting` and `taken` are ends of pipes. One process reads the number of each part from `waiting`, and then writes
    its process id to `taken`.
    """
    while (number := os.read(waiting, 1)) and number[0] != NO_MORE:
        os.write(taken, f"{os.getpid()}\n".encode())
        yield number[0]


def number_of_helpers(module: TrialModule, num_parts: int) -> int:
    """Return how many helpers the parts need and the cores allow; 0 on a CPU, where C++ compilers use all cores.

    A module needs them only if several of its functions keep traces.
    """
    num_kept = sum(isinstance(value, kept_traces.KeptTraces) for value in vars(module).values())
    if module.device.type != "cuda" or num_kept < 2:
        return 0
    return min(num_parts - 1, most_helpers())


def most_helpers() -> int:
    """Return how many helpers the cores allow."""
    return max(0, min(MOST_HELPERS, math.floor(num_cores() / CORES_PER_PROCESS) - 1))


def num_cores() -> float:
    return min(processes.threads_each(1), processes.quota())


class Helpers:
    """Processes that compile parts beside this one. Importing takes seconds, so they may start before there are parts.

    They end with `end`, or with this process.
    """

    def __init__(self, run_dir: Path, number: int) -> None:
        self._waiting, self._numbers = os.pipe()
        self._started, self._taken = os.pipe()
        self._processes: list[subprocess.Popen[bytes]] = []
        with suppress(OSError):
            for _ in range(number):
                self._processes.append(started_helper(run_dir, (self._waiting, self._taken), number + 1))

    def compile(self, parts: Mapping[int, Part]) -> None:
        """Compile all parts, the first one in this process.

        A part may be left to the warm-up, if a process lacked memory that others took, failed, or took too long.
        """
        first, *others = parts
        # The pipe's end would not do: a process that was forked while the data were made may hold it open.
        os.write(self._numbers, bytes([*others, *[NO_MORE] * (len(self._processes) + 1)]))
        try:
            with kept_traces.only_kept():
                for number in chain([first], taken_numbers(self._waiting, self._taken)):
                    parts[number]()
        except Exception as error:
            logging.getLogger(__name__).info("compiled later: %s: %s", type(error).__name__, error)
        wait_for(self._processes, self._started)

    def end(self) -> None:
        """End the helpers; those that have taken no part may still be importing."""
        for process in self._processes:
            process.kill()
            process.wait()
        for name in ("_waiting", "_numbers", "_started", "_taken"):
            self._close(name)

    def _close(self, name: str) -> None:
        if (descriptor := getattr(self, name)) >= 0:
            os.close(descriptor)
            setattr(self, name, -1)


def started_helper(run_dir: Path, descriptors: tuple[int, int], num_processes: int) -> subprocess.Popen[bytes]:
    environment = {THREADS: str(max(1, math.floor(num_cores() / num_processes)))} | os.environ
    words = [str(run_dir), *map(str, descriptors), str(os.getpid())]
    command = [sys.executable, "-P", "-m", installation.module("trainers.loop.worker.compile_part"), *words]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=descriptors)


def wait_for(helpers: Sequence[subprocess.Popen[bytes]], started: int) -> None:
    """Wait, up to LONGEST_WAIT_SEC, for the helpers that have taken a part: `started` has their process ids."""
    began = time.monotonic()
    takers = {int(pid) for pid in written(started).split()}
    for helper in helpers:
        if helper.pid in takers:
            with suppress(subprocess.TimeoutExpired):
                helper.wait(max(0.0, began + LONGEST_WAIT_SEC - time.monotonic()))
    if helpers:
        WAITS_SEC.append(time.monotonic() - began)


def written(pipe: int) -> bytes:
    """Return what was written to a pipe so far, without waiting for more."""
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 65_536)
    except BlockingIOError:
        return b""
