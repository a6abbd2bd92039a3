"""In the worker: what each rank's time within a step went to, and what held up its host.

Marks are set on the device's timeline, and read a window later, as those of a step's beginning and end are. Whoever
drives a training is asked for no more than its optimizer and its loader.
"""

from __future__ import annotations

from tracking.measure.steps import rank_parts
from tracking.measure.steps.host_watch import HostWatch
from tracking.measure.steps.loader_marks import batches
from tracking.measure.steps.nvtx_ranges import Ranges, nvtx_ranges
from tracking.measure.steps.step_marks import LastGradient, optimizer_steps

__all__ = ["HostWatch", "LastGradient", "Ranges", "batches", "nvtx_ranges", "optimizer_steps", "rank_parts"]
