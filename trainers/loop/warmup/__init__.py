"""Compiles and warms up before the clock starts: which process compiles first, and how long each part took."""

from __future__ import annotations

from trainers.loop.warmup.parallel import Helpers
from trainers.loop.warmup.steps import (
    compile_alone,
    evaluating,
    flops_per_sample,
    number_of_helpers,
    untouched,
    warm_up,
)
from trainers.loop.warmup.trace_folder import forgotten_on_failure, keep_traces, kept_flops

__all__ = [
    "Helpers",
    "compile_alone",
    "evaluating",
    "flops_per_sample",
    "forgotten_on_failure",
    "keep_traces",
    "kept_flops",
    "number_of_helpers",
    "untouched",
    "warm_up",
]
