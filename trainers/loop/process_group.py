"""Joins a run's processes: over gloo at once, over NCCL in a thread."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from conf.schema import RunConfig
from tracking.record import Journal, part_of_start, run_folder
from trainers.workload import Shard


def join_and_log(config: RunConfig, run_dir: Path) -> tuple[Shard, Journal | None]:
    """Join the process group; return this process's shard and, on rank 0, the run's journal."""
    shard = join(config)
    if shard.rank:
        return shard, None
    log = Journal(run_dir / run_folder.JOURNAL)
    log.event("process_group_stop")  # The agent wrote process_group_start before it forked the ranks.
    return shard, log


def join(config: RunConfig) -> Shard:
    """Join the run's process group, even as its only process, and check its size.

    Lightning makes no group for one process, and trusts the environment for the world size. The second job of a sweep
    could then train on half of the data and report twice the speed. Raises AssertionError for another size.
    """
    device = torch.device("cuda", 0) if config.on_gpu() else torch.device("cpu")
    if config.on_gpu():
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl")  # NCCL connects later: see Communicator.
    else:
        dist.init_process_group("gloo")
    counted = torch.ones(())
    dist.all_reduce(counted)  # This counts the processes over gloo. The environment may be wrong.
    world_size = int(counted)
    assert world_size == config.world_size(), f"{world_size} processes take part; the config has {config.world_size()}"
    return Shard(dist.get_rank(), world_size, device)


class Communicator:
    """NCCL's communicator of the run's processes, made in a thread: for four GPUs it takes 2 to 3 s.

    Until `wait` has returned, the main thread may communicate over gloo only, that is with tensors on the CPU.
    """

    def __init__(self, shard: Shard, log: Journal | None, early: bool) -> None:
        """With `early`, return only once the communicator is made."""
        self._device, self._world_size, self._log = shard.device, shard.world_size, log
        self._errors: list[Exception] = []
        self._making: threading.Thread | None = None
        if shard.device.type == "cuda":
            self._making = threading.Thread(target=self._make, daemon=True)
            self._making.start()
        if early:
            self.wait()

    def _make(self) -> None:
        try:
            torch.cuda.set_device(self._device)
            counted = torch.ones((), device=self._device)
            dist.all_reduce(counted)
            assert int(counted) == self._world_size, f"NCCL connects {int(counted)} of {self._world_size} processes"
        except Exception as error:
            self._errors.append(error)

    def wait(self) -> None:
        """Wait until the communicator is made, and raise the error of making it. A second call does nothing."""
        if self._making is None:  # without GPUs, or made
            return
        with part_of_start(self._log, "process_group"):
            self._making.join()
        self._making = None
        if self._errors:
            raise self._errors[0]
        group: Any = dist.group.WORLD
        group.bound_device_id = self._device  # so that groups made from now on know it
