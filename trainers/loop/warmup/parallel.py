"""Compiles the parts of a step in several processes: training and evaluation on each shape of batches.

PyTorch traces a graph and generates its code in one Python thread, for up to half a minute, while other cores idle. So
helper processes (worker/compile_part.py) compile parts on the same GPU. Each process takes the next part that no
other has taken, and the run's process then loads what the helpers kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from tracking.base import installation
from tracking.machine.environment import processes
from trainers.loop.warmup.kept_traces import KeptTraces
from trainers.workload import Batch, TrialModule

Part = Callable[[], object]
CORES_EACH = 4  # of each process; its compiler has processes of its own, which share these
MOST_HELPERS = 5
LONGEST_WAIT_SEC = 120.0
WAITS_SEC: list[float] = []  # durations for which this process waited for helpers


def parts(
    batches: Sequence[Batch], train: Callable[[Batch], object], evaluate: Callable[[Batch], object] | None
) -> list[Part]:
    """Return the parts of a step in the order in which they are taken: training takes longer, so it comes first."""
    return [partial(call, batch) for call in (train, evaluate) if call for batch in batches]


def take_parts(folder: Path, parts: Sequence[Part]) -> None:
    """Compile the parts that no process has taken. `folder` has a link for each taken one, to its process's id."""
    for number, part in enumerate(parts):
        try:
            (folder / str(number)).symlink_to(str(os.getpid()))
        except FileExistsError:
            continue
        part()


def number_of_helpers(module: TrialModule, parts: Sequence[Part]) -> int:
    """Return 0 on a CPU, where C++ compilers use all cores, and unless several functions of the module keep traces."""
    num_kept = sum(isinstance(value, KeptTraces) for value in vars(module).values())
    if module.device.type != "cuda" or num_kept < 2:
        return 0
    return max(0, min(MOST_HELPERS, len(parts) - 1, processes.threads_each(1) // CORES_EACH - 1))


def compile_parts(run_dir: Path, parts: Sequence[Part], num_helpers: int) -> None:
    """Compile all parts, in this process and in helpers.

    Afterwards a part may still have to be compiled: its helper failed, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="timetrial-compile-") as name:
        folder = Path(name)
        helpers = [start_helper(run_dir, folder, len(parts), num_helpers + 1) for _ in range(num_helpers)]
        try:
            with suppress(*([torch.OutOfMemoryError] if helpers else [])):  # Without the helpers it may fit.
                take_parts(folder, parts)
            wait_for_takers(folder, helpers)
        finally:
            for helper in helpers:  # Those that have taken no part may still be importing.
                helper.kill()
                helper.wait()


def start_helper(run_dir: Path, folder: Path, num_parts: int, num_processes: int) -> subprocess.Popen[bytes]:
    threads = str(max(1, processes.threads_each(num_processes)))
    # PyTorch's number of threads stays as it is here: guards of a kept trace compare it.
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": threads}
    words = [
        installation.module("trainers.loop.worker.compile_part"),
        str(run_dir),
        str(folder),
        str(num_parts),
        str(os.getpid()),
    ]
    return subprocess.Popen([sys.executable, "-P", "-m", *words], env=environment, stdin=subprocess.DEVNULL)


def wait_for_takers(folder: Path, helpers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait, up to LONGEST_WAIT_SEC, for the helpers that have taken a part."""
    takers, began = {int(str(part.readlink())) for part in folder.iterdir()}, time.monotonic()
    for helper in helpers:
        if helper.pid in takers:
            with suppress(subprocess.TimeoutExpired):
                helper.wait(max(0.0, began + LONGEST_WAIT_SEC - time.monotonic()))
    WAITS_SEC.append(time.monotonic() - began)
