"""Runs one rank of a run; a rank that fails writes its failure to a file, which the agent reads.

A rank sees only its own GPU, as `cuda:0`, so that all can use one compiled code: PyTorch writes a device's number into
generated code and into the keys of its cache. NCCL still moves data directly between GPUs, because it names them by PCI
address.
"""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.record import Failure, documents, run_folder
from trainers.loop.worker.signal_deaths import die_with
from trainers.loop.worker.threads import tell_libraries

if TYPE_CHECKING:
    from multiprocessing.synchronize import Semaphore

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from collections.abc import MutableMapping

VISIBLE, PLACE = "CUDA_VISIBLE_DEVICES", "LOCAL_RANK"


def run_rank(run_dir: Path, environment: dict[str, str], may_join: Semaphore) -> None:
    """Train as one rank, and exit; a failure is written to a file for the agent."""
    agent = multiprocessing.parent_process()
    assert agent is not None
    die_with(int(agent.pid or 0))
    from trainers.loop.saving import SavedAndEnded
    from trainers.loop.train import train

    gc.freeze()  # Collections need not scan what was imported.
    rank, pid = int(os.environ["RANK"]), os.getpid()
    config = run_folder.read_config(run_dir)
    be_alone(config.on_gpu())
    tell_libraries()
    may_join.acquire()
    try:
        train(config, run_dir, environment)
    except SavedAndEnded:  # The supervisor waits for this exit, and reports why the run ended.
        os._exit(0)
    except Exception as error:
        if os.getpid() != pid:  # A process that the workload forked has failed, not the rank itself.
            traceback.print_exc()
            os._exit(1)
        from tracking.measure.training import classify

        kind = classify(error)
        message = str(error) if kind == "bad_input" else f"{type(error).__name__}: {error}"
        failure = Failure(kind, message, traceback.format_exc(), rank)
        with suppress(OSError):  # On a full disk only the exit code can tell.
            documents.write_json(run_dir / run_folder.FAILURE.format(rank=rank), failure)
        with suppress(OSError):
            traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        if kind == "error" and config.world_size() > 1:
            time.sleep(2)  # If a peer's death is the cause, the agent has to see that one first.
        # Skip exit handlers: they would wait for peers that may be gone.
        os._exit(errno.ENOSPC if kind == "disk_full" else 1)


def first_failure(run_dir: Path, error: ChildFailedError) -> Failure:
    """Return the failure of the rank that failed first; its peers fail because it is gone.

    The supervisor adds what the worker printed last (tracking.record.failures.with_last_words).
    """
    rank, failure = error.get_first_failure()
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        return Failure(f"signal:{-failure.exitcode}", f"rank {rank} was killed by {name}", rank=rank)
    file = run_dir / run_folder.FAILURE.format(rank=rank)
    if file.exists():
        return Failure(**documents.read_json(file))
    if failure.exitcode == errno.ENOSPC:
        return Failure("disk_full", f"rank {rank} could not write to {run_dir}: {os.strerror(errno.ENOSPC)}", rank=rank)
    return Failure("error", f"rank {rank} ended with exit code {failure.exitcode}", rank=rank)


def be_alone(on_gpu: bool, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set LOCAL_RANK to 0 and, for a run on GPUs, CUDA_VISIBLE_DEVICES to this process's own GPU.

    Call it before CUDA is initialised. An entry of CUDA_VISIBLE_DEVICES is kept as it is: a number, or the UUID of a
    GPU or a MIG instance.
    """
    place = int(environ[PLACE])
    if on_gpu:
        shown = environ.get(VISIBLE)
        environ[VISIBLE] = str(place) if shown is None else shown.split(",")[place].strip()
    environ[PLACE] = "0"
