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
    """`lock` is the descriptor of the folder's lock, -1 on a node that is not the head.

    `started` is when what precedes the clock began, in seconds of the monotonic clock; `launcher` the process whose
    descendants are the run's.
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
