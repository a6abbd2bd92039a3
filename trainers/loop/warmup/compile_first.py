"""Lets one process of each node compile first, and the others load its results from the cache.

Without this, every process would compile the same code on its share of the cores. If a step like this one was compiled
before, no process waits.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
import torch.distributed as dist

from conf.schema import RunConfig
from tracking.machine.environment import inductor_folder
from tracking.record import run_folder
from trainers.ops import compiling
from trainers.workload import Shard

LONGEST_WAIT_SEC = 120.0
OUR_OWN = "trainers."  # prefix of the names of our workloads
FOLDER = "timetrial"  # within Inductor's cache folder, so that our marks move with it
TRACES = f"{FOLDER}/traces"


def compile_in_turn(
    config: RunConfig, run_dir: Path, shard: Shard, compile_alone: Callable[[], None], has_helpers: bool
) -> None:
    """Let the first process of each node call `compile_alone` while the others wait. A collective call.

    No process calls it if a step like this one was compiled before. A single process calls it only if it `has_helpers`;
    without them the warm-up compiles as quickly.

    `compile_alone` must not make collective calls. A user's model may make them (a loss over all processes), and a
    sharded model does, to gather its layers: all processes compile these at once. The compiling process holds a lock,
    which the kernel releases if the process is killed. The others wait up to LONGEST_WAIT_SEC.
    """
    if config.sharded() or not config.model.workload.startswith(OUR_OWN):
        return
    if shard.world_size == 1:
        if has_helpers and not was_compiled(config, shard.device):
            compile_alone()
        return
    cached = torch.tensor(float(was_compiled(config, shard.device)))  # on the CPU: NCCL may not be connected yet
    dist.all_reduce(cached, dist.ReduceOp.MIN)  # Nodes may have different caches, but all must decide alike.
    if cached:
        return
    leads = shard.rank % config.processes_per_node() == 0
    with _opened(run_dir / run_folder.CONFIG) as file:
        if leads:
            _locks(file, fcntl.LOCK_SH)  # It is shared, because each node has a leading process.
        dist.all_reduce(cached)  # a barrier over gloo
        if leads:
            compile_alone()
            _locks(file, fcntl.LOCK_UN)  # Closing is not enough: a process forked meanwhile has the file open, too.
            return
        deadline = time.monotonic() + LONGEST_WAIT_SEC
        while not _locks(file, fcntl.LOCK_EX) and time.monotonic() < deadline:
            time.sleep(0.05)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _locks(file: int, kind: int) -> bool:
    """Take the lock if it is free, and return whether it was; True on a file system without locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def was_compiled(config: RunConfig, device: torch.device) -> bool:
    """Return whether a step of this model, shape and precision was compiled here before, by any version of the code."""
    with suppress(OSError, KeyError):
        return _mark(config, device).exists()
    return False


def note_compiled(config: RunConfig, device: torch.device) -> None:
    """Leave a mark for later runs, if the cache can be written to."""
    with suppress(OSError, KeyError):
        mark = _mark(config, device)
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()


def _mark(config: RunConfig, device: torch.device) -> Path:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    model = [config.model.workload, config.model.hparams, config.device_batch_size(), vars(config.dataset)]
    model += ["kept"] if compiling.keeper else []  # Kept traces are files of their own, which an earlier run may lack.
    key = json.dumps([torch.__version__, gpu, config.precision.name, *model], default=str, sort_keys=True)
    return inductor_folder(os.environ) / FOLDER / hashlib.sha256(key.encode()).hexdigest()
