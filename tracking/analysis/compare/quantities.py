"""The figures that a report shows of runs: under which heading, of which metric, and which ratios follow from them."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """A figure that is read off runs: `scale` times the metric `key`."""

    heading: str  # with the unit
    key: str
    scale: float = 1.0


QUANTITIES = (
    Quantity("minutes an epoch", "time/epoch_sec", 1 / 60),
    Quantity("epochs", "epochs/to_accuracy"),
    Quantity("epochs trained", "epochs/trained"),
    Quantity("evaluations", "evaluations/to_accuracy"),
    Quantity("s an evaluation", "time/evaluation_interval_sec"),
    Quantity("time to accuracy (s)", "time/to_accuracy_sec"),
    Quantity("without evaluation (s)", "time/to_accuracy_train_sec"),
    Quantity("samples/s", "throughput/samples_per_sec"),
    Quantity("FLOPs utilisation (%)", "throughput/model_flops_utilization", 100.0),
    Quantity("cost to accuracy (USD)", "cost/to_accuracy_usd"),
    Quantity("cost of a run (USD)", "cost/usd"),
)
# By the metric from which they follow, the headings of the speed-up and of its efficiency.
RATIOS = {
    "time/to_accuracy_sec": ("speed-up", "efficiency"),
    "throughput/samples_per_sec": ("speed-up of the rate", "efficiency of the rate"),
}
# By how a metric's key ends; the first that fits.
UNITS = {
    "samples_per_sec": "samples/s", "samples_per_sec_per_device": "samples/s a device", "tokens_per_sec": "tokens/s",
    "megabytes_per_sec": "MB/s", "per_sec": "a second", "sec": "s", "ms_p50": "ms", "ms_p90": "ms", "ms_p99": "ms",
    "bytes": "bytes", "joules": "J", "joules_per_sample": "J a sample", "usd": "USD", "percentage": "%",
    "epochs/to_accuracy": "epochs", "epochs/trained": "epochs", "evaluations/to_accuracy": "evaluations",
}  # fmt: skip


def unit(key: str) -> str:
    """The unit of a metric, behind a space; empty where it has none, as an accuracy."""
    return next((f" {unit}" for ending, unit in UNITS.items() if re.search(rf"(?:^|[_/]){ending}$", key)), "")
