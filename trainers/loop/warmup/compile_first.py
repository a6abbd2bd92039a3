"""Where the processes of a node start with nothing compiled, one compiles first, and the others take what it left.

Each would compile the same otherwise, and have a share of the cores for it. Where a step like this one was compiled
before, nobody waits.
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
from trainers.workload import Shard

LONGEST_WAIT_SEC = 120.0
OUR_OWN = "trainers."  # how the names of our workloads begin
FOLDER = "timetrial"  # in Inductor's own, so that it is carried with what was compiled


def compile_in_turn(config: RunConfig, run_dir: Path, shard: Shard, compile_alone: Callable[[], None]) -> None:
    """Have the first process of each node call `compile_alone` while the others wait; a collective call.

    `compile_alone` must not make one, as no step of our own models does. A user's may (a loss over all processes), and
    a sharded model's gathers its layers, so processes compile theirs at once. Who compiles holds a lock, which the
    kernel takes back should it be killed. After LONGEST_WAIT_SEC the others go on by themselves.
    """
    if shard.world_size == 1 or config.sharded() or not config.model.workload.startswith(OUR_OWN):
        return
    lasting = torch.tensor(float(was_compiled(config, shard.device)), device=shard.device)
    dist.all_reduce(lasting, dist.ReduceOp.MIN)  # Caches of nodes differ, and all decide alike.
    if lasting:
        return
    leads = shard.rank % config.processes_per_node() == 0
    with _opened(run_dir / run_folder.CONFIG) as file:
        if leads:
            _locks(file, fcntl.LOCK_SH)  # There is one on each node.
        dist.barrier()
        if leads:
            compile_alone()
            _locks(file, fcntl.LOCK_UN)  # A process that was forked meanwhile has the file open, too.
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
    """Whether nobody else's lock is in the way. Where a file system has no locks, nothing is."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def was_compiled(config: RunConfig, device: torch.device) -> bool:
    """Whether a step of this model, shape and precision was compiled here before; what the code was is not asked."""
    with suppress(OSError, KeyError):
        return _mark(config, device).exists()
    return False


def note_compiled(config: RunConfig, device: torch.device) -> None:
    """Let later runs know. A cache that cannot be written to has no such notes."""
    with suppress(OSError, KeyError):
        mark = _mark(config, device)
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()


def _mark(config: RunConfig, device: torch.device) -> Path:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    model = [config.model.workload, config.model.hparams, config.device_batch_size(), vars(config.dataset)]
    asked = json.dumps([torch.__version__, gpu, config.precision.name, *model], default=str, sort_keys=True)
    return inductor_folder(os.environ) / FOLDER / hashlib.sha256(asked.encode()).hexdigest()
