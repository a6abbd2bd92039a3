"""The state that the supervisor's modules share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.jobs.handover import Forks, Lifeline
from tracking.jobs.node.rendezvous.nodes import Nodes
from tracking.jobs.node.task import Task


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
