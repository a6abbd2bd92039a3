"""Which way a metric is better, by its key."""

from __future__ import annotations

from tracking.record import evaluations

RATES = (
    "throughput/samples_per_sec",
    "throughput/samples_per_sec_per_device",
    "throughput/tokens_per_sec",
    "throughput/source_tokens_per_sec",
    "throughput/target_tokens_per_sec",
    "throughput/model_flops_utilization",
)
COSTS = (
    "time/", "epochs/", "evaluations/", "cost/", "energy/", "memory/", "throughput/step_ms", "throughput/data_wait",
)  # fmt: skip
SCORES = ("eval/", "test/")  # what a model is evaluated by


def higher_is_better(key: str) -> bool:
    """Of rates and scores more is better; of times, costs, losses and all else, less."""
    return key in RATES or (key.startswith(SCORES) and evaluations.higher_is_better(key))


def has_slowdown(key: str) -> bool:
    """Whether it is a rate, a time or a cost, of which it can be said that one is slower than another."""
    return key in RATES or key.startswith(COSTS)
