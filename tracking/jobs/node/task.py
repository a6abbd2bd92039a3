"""A node's part of a run, as the supervisor's modules share it, and its place in a scheduled job."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.jobs.handover import Forks, Lifeline
from tracking.jobs.node import slurm
from tracking.jobs.node.nodes import Nodes

PLACE = ".nodes-"


@dataclass(frozen=True)
class Task:
    job_id: str
    step_id: str
    restarts: int  # how often the job was queued again
    rank: int
    num_tasks: int
    num_nodes: int
    node: str

    @classmethod
    def of_slurm(cls, environ: Mapping[str, str] = os.environ) -> Task:
        """The task that srun started. Raises ConfigError without srun."""
        try:
            return cls(
                environ["SLURM_JOB_ID"],
                environ["SLURM_STEP_ID"],
                int(environ.get("SLURM_RESTART_COUNT", 0)),
                int(environ["SLURM_PROCID"]),
                int(environ["SLURM_STEP_NUM_TASKS"]),
                int(environ["SLURM_STEP_NUM_NODES"]),
                environ.get("SLURMD_NODENAME") or platform.node(),
            )
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{error}: srun sets it, but did not start this process. Next: use job.sbatch") from None

    @classmethod
    def local(cls) -> Task:
        """The task of a run that no scheduler has started."""
        return cls("", "", 0, 0, 1, 1, platform.node())

    @property
    def scheduled(self) -> bool:
        return bool(self.job_id)

    def check(self, config: RunConfig, num_gpus: int) -> None:
        """Raise ConfigError if the allocation is not what the run asks for."""
        for unit, count in (("tasks", self.num_tasks), ("nodes", self.num_nodes)):
            if count != config.nodes:
                raise ConfigError(
                    f"nodes={config.nodes}: Slurm's job {self.job_id} has {count} {unit}, but the run needs"
                    f" {config.nodes}, one a node. Next: see cluster.lines and the options of the allocation"
                )
        if num_gpus < config.num_gpus():
            raise ConfigError(
                f"gpus={config.gpus}: {num_gpus} visible on node {self.node}. Next: see cluster.gpus_option, which"
                " asks for them, or give fewer"
            )

    @property
    def place(self) -> str:
        """The name of the folder in which the nodes of this attempt meet."""
        return f"{PLACE}{self.job_id}-{self.step_id}-{self.restarts}"

    def address(self) -> str:
        """How the scheduler reaches this node; empty without one."""
        return slurm.node_address(self.node) if self.scheduled else ""


@dataclass
class Part:
    """A node's part of a run, and what its supervisor was given for it."""

    folder: Path
    config: RunConfig
    task: Task
    gpus: list[Any]
    started: float  # monotonic seconds at which the run began to start, before its clock
    lifeline: Lifeline
    lock: int = -1  # descriptor of the folder's lock; only the head node has it
    launcher: int | None = None  # the process whose descendants belong to the run
    others: Nodes | None = None  # the other nodes; None for a run on one
    forks: Forks | None = None  # the fork servers, if the worker may be forked

    @property
    def gpu_uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.gpus]
