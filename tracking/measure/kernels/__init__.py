"""What the steps of a training spent their time in: the kernels of a trace by time and class, and the gaps between.

A trace is what PyTorch's profiler writes, in the Trace Event Format that Perfetto shows. Everything here is computed
from that document, so it holds for a GPU that is not here. On a CPU the innermost operators stand for kernels.
"""

from __future__ import annotations

from tracking.measure.kernels import merged_trace, program_trace
from tracking.measure.kernels.profile import (
    KERNELS,
    PROFILE,
    SCRATCH,
    Profile,
    read,
    remove_scratch,
    slowest,
    trace_name,
    write,
)
from tracking.measure.kernels.trace import MARK, Trace, parse
from tracking.measure.kernels.trace_summary import Summary, summarize

__all__ = [
    "KERNELS", "MARK", "PROFILE", "SCRATCH", "Profile", "Summary", "Trace", "merged_trace", "parse", "program_trace",
    "read", "remove_scratch", "slowest", "summarize", "trace_name", "write",
]  # fmt: skip
