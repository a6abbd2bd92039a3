"""One process of a run: it trains, and leaves its failure as a file in which the agent reads what was the first."""

from __future__ import annotations

import errno
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
from trainers.loop.worker.own_gpu import be_alone
from trainers.loop.worker.signal_deaths import die_with

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


def run_rank(run_dir: Path, environment: dict[str, str]) -> None:
    """The entry point of one process; a failure is left as a file for the agent."""
    agent = multiprocessing.parent_process()
    assert agent is not None
    die_with(int(agent.pid or 0))
    from trainers.loop.saving import SavedAndEnded
    from trainers.loop.train import train

    rank, pid = int(os.environ["RANK"]), os.getpid()
    config = run_folder.read_config(run_dir)
    be_alone(config.on_gpu())
    try:
        train(config, run_dir, environment)
    except SavedAndEnded:  # The supervisor waits for this, and says why the run ends.
        os._exit(0)
    except Exception as error:
        if os.getpid() != pid:  # A process that the workload forked has failed, and the rank itself goes on.
            traceback.print_exc()
            os._exit(1)
        from tracking.measure.training import classify

        kind = classify(error)
        message = str(error) if kind == "bad_input" else f"{type(error).__name__}: {error}"
        failure = Failure(kind, message, traceback.format_exc(), rank)
        with suppress(OSError):  # On a full disk the exit code has to say it all.
            documents.write_json(run_dir / run_folder.FAILURE.format(rank=rank), failure)
        with suppress(OSError):
            traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        if kind == "error" and config.world_size() > 1:
            time.sleep(2)  # A peer's death may be the cause, and the agent has to see that first.
        # Not through exit handlers: they would wait for peers that may be gone.
        os._exit(errno.ENOSPC if kind == "disk_full" else 1)


def first_failure(run_dir: Path, error: ChildFailedError) -> Failure:
    """What ended the first rank to fail; its peers then fail for want of it.

    Who follows the worker adds what it printed last (tracking.record.failures.with_last_words).
    """
    rank, failure = error.get_first_failure()
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        return Failure(f"signal:{-failure.exitcode}", f"rank {rank} was killed by {name}", rank=rank)
    file = run_dir / run_folder.FAILURE.format(rank=rank)
    if file.exists():
        return Failure(**documents.read_json(file))
    if failure.exitcode == errno.ENOSPC:
        return Failure("disk_full", f"rank {rank} could not write: {os.strerror(errno.ENOSPC)}: {run_dir}", rank=rank)
    return Failure("error", f"rank {rank} ended with exit code {failure.exitcode}", rank=rank)
