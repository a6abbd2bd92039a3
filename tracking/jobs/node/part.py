"""A node's part of a run."""

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
    """A node's part of a run.

    `lock` is the descriptor of the folder's lock, -1 on a node that is not the head.
    `started` is when the run's start, which precedes the clock, began, in monotonic seconds. `launcher` is the process
    whose descendants belong to the run.
    """

    folder: Path
    config: RunConfig
    task: Task
    gpus: list[Any]
    started: float
    line: Lifeline
    lock: int = -1
    launcher: int | None = None
    others: Nodes | None = None
    forks: Forks | None = None  # the fork servers, if the worker may be forked

    @property
    def gpu_uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.gpus]
