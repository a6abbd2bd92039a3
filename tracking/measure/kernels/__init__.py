"""Where the steps of a training spent their time: a trace's kernels by time and class, and the gaps between them.

PyTorch's profiler writes a trace in the Trace Event Format, which Perfetto shows. Everything is computed from this
document alone, without the GPU. On a CPU, the innermost operators take the place of kernels.
"""

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
from tracking.measure.kernels.trace_summary import summarize

__all__ = [
    "KERNELS", "MARK", "PROFILE", "SCRATCH", "Profile", "Trace", "merged_trace", "parse", "program_trace",
    "read", "remove_scratch", "slowest", "summarize", "trace_name", "write",
]  # fmt: skip
