"""What is compiled and warmed up before the clock starts, by whom, and how long its parts took."""

from __future__ import annotations

from trainers.loop.warmup.steps import compile_alone, evaluating, flops_per_sample, untouched, warm_up

__all__ = ["compile_alone", "evaluating", "flops_per_sample", "untouched", "warm_up"]
