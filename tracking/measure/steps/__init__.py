"""In the worker: each rank's time within a step by part, and what held up its host.

Marks on the device's timeline are read a window later, like those of a step's start and end. A training loop has to
provide only its optimizer and its loader.
"""

from tracking.measure.steps import first_process, rank_parts
from tracking.measure.steps.host_watch import HostWatch
from tracking.measure.steps.nvtx_ranges import Ranges, nvtx_ranges
from tracking.measure.steps.shard_marks import ShardedExchanges
from tracking.measure.steps.step_marks import LastGradient, batches, optimizer_steps

__all__ = [
    "HostWatch", "LastGradient", "Ranges", "ShardedExchanges", "batches", "first_process", "nvtx_ranges",
    "optimizer_steps", "rank_parts",
]  # fmt: skip
