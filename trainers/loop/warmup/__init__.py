"""Compiles, warms up and records steps before the clock starts: which process does it first, and how long it takes."""

from __future__ import annotations

from trainers.loop.warmup.captured_steps import CapturedSteps, captures
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
    "CapturedSteps",
    "Helpers",
    "captures",
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
