"""Selects the queue that a config asks for."""

from __future__ import annotations

from conf.schema import RunConfig
from tracking.jobs.handover import Ahead
from tracking.jobs.queues.queue import Queue
from tracking.jobs.queues.slurm_queues import AllocationQueue, BatchQueue
from tracking.jobs.queues.this_machine import Machine


def queue_of(config: RunConfig, ahead: Ahead | None = None) -> Queue:
    """The queue of the config's cluster; `ahead` is what was started on this machine for its first run."""
    if config.cluster.kind == "none":
        return Machine(config.sweep.jobs_at_once, ahead)
    if ahead:
        ahead.dismiss()
    if config.cluster.kind == "slurm":
        return BatchQueue(config.cluster.jobs_at_once, config.cluster.poll_sec)
    return AllocationQueue(config.cluster.jobs_at_once)
