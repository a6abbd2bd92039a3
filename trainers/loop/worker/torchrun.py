"""Starts the ranks of a node through torchrun's API.

torchrun's agent forks one process a device. It forks after the imports, so Lightning is imported once, not once a
process.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.schema import RunConfig
from tracking.record import node_records
from trainers.loop.worker.other_nodes import TIMEOUT_SEC
from trainers.loop.worker.rank import run_rank

if TYPE_CHECKING:
    from multiprocessing.synchronize import Semaphore

    from torch.distributed.elastic.agent.server.api import WorkerGroup
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.launcher.api import LaunchConfig

FORKED = "timetrial/forked"  # The head node's agent sets this key in the run's store.


def launch(config: RunConfig, run_dir: Path, environment: dict[str, str]) -> None:
    """Run this node's ranks to their end. Raises ChildFailedError, and SignalException for a signal to the agent."""
    from torch.distributed.launcher import api

    name_methods_quickly()
    may_join = multiprocessing.get_context("fork").Semaphore(0)
    api.LocalElasticAgent = agent_with(may_join)  # type: ignore[misc]
    api.elastic_launch(launch_config(config, run_dir), run_rank)(run_dir, environment, may_join)


def agent_with(may_join: Semaphore) -> type[LocalElasticAgent]:
    """Return torchrun's agent, extended: ranks join the process group only after the head node's ranks are forked.

    The head node's agent holds the store through which all ranks join. One of its threads looks up the address of each
    rank that joins. A rank that is forked during a look-up would inherit glibc's resolver locked, for ever.
    """
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    class Agent(LocalElasticAgent):
        def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
            started: dict[int, Any] = super()._start_workers(worker_group)
            wait_for_head(worker_group.store, worker_group.group_rank)
            for _ in started:
                may_join.release()
            return started

    return Agent


def wait_for_head(store: Any, node: int | None) -> None:
    """Wait until the head node's agent has forked its ranks. If it is gone, return: joining ranks report that."""
    if node == 0:
        store.set(FORKED, "")
        return
    deadline = time.monotonic() + TIMEOUT_SEC
    with suppress(RuntimeError):
        while not store.check([FORKED]) and time.monotonic() < deadline:
            time.sleep(0.01)


def launch_config(config: RunConfig, run_dir: Path) -> LaunchConfig:
    """Return settings as of `torchrun --standalone --nproc-per-node=N --max-restarts=0` (or --nnodes=M), with fork."""
    from torch.distributed.launcher.api import LaunchConfig

    several = config.nodes > 1
    return LaunchConfig(
        min_nodes=config.nodes,
        max_nodes=config.nodes,
        nproc_per_node=config.processes_per_node(),
        rdzv_backend="static" if several else "c10d",
        rdzv_endpoint=node_records.rendezvous() if several else "localhost:0",
        rdzv_configs={"rank": node_records.rank(), "timeout": TIMEOUT_SEC} if several else {},
        run_id=run_dir.name,
        max_restarts=0,  # A restart would hide a failure within a measured time.
        start_method="fork",
        monitor_interval=0.1,
    )


def name_methods_quickly() -> None:
    """Make torchrun's rendezvous find a method's name without `inspect.stack`.

    `inspect.stack` searches the sources of all modules, 18 times a run, for events that are not recorded.
    """
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    dynamic_rendezvous.get_method_name = lambda depth=2: sys._getframe(depth).f_code.co_name
