"""Selects the queue that a config asks for."""

from __future__ import annotations

from conf.schema import RunConfig
from tracking.jobs.handover import SupervisorProcess
from tracking.jobs.queues.queue import Queue
from tracking.jobs.queues.slurm_queues import AllocationQueue, BatchQueue
from tracking.jobs.queues.this_machine import Machine


def queue_of(config: RunConfig, waiting: SupervisorProcess | None = None) -> Queue:
    """The queue of the config's cluster; `waiting` is a supervisor that was started in advance on this machine."""
    if config.cluster.kind == "none":
        return Machine(config.sweep.jobs_at_once, waiting)
    if waiting:
        waiting.dismiss()
    if config.cluster.kind == "slurm":
        return BatchQueue(config.cluster.jobs_at_once, config.cluster.poll_sec)
    return AllocationQueue(config.cluster.jobs_at_once)
