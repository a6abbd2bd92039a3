"""How busy a run kept its hardware: means over its training that a report sets beside its speed.

Of a GPU's links there is what they carried and what they could: the copy between the slowest pair of the GPUs in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from tracking.measure.bottleneck.ceilings import Ceilings

PREFIX = "utilization/"
PAIR = "ceilings/slowest_pair_megabytes_per_sec"
# By MLflow key, the heading in a report.
HEADINGS = {
    f"{PREFIX}gpu_utilization_percentage": "GPU utilisation (%)",
    f"{PREFIX}gpu_sm_activity_percentage": "SM activity (%)",
    f"{PREFIX}gpu_tensor_activity_percentage": "tensor cores active (%)",
    f"{PREFIX}gpu_dram_bandwidth_percentage": "DRAM bandwidth (%)",
    f"{PREFIX}gpu_nvlink_transmit_megabytes_per_sec": "NVLink, out of a GPU (MB/s)",
    f"{PREFIX}gpu_pcie_transmit_megabytes_per_sec": "PCIe, out of a GPU (MB/s)",
    PAIR: "copy between the slowest pair (MB/s)",
    f"{PREFIX}run_cpu_percentage": "CPU cores busy (%)",
    f"{PREFIX}cpu_memory_megabytes_per_sec": "CPU memory traffic (MB/s)",
}


def figures(means: Mapping[str, float], measured: Ceilings | None, indices: Sequence[int]) -> dict[str, float]:
    """By MLflow key; `means` are those of `activity.means`, `indices` those of the GPUs in use."""
    kept = {key: means[key.removeprefix(PREFIX)] for key in HEADINGS if key.removeprefix(PREFIX) in means}
    slowest = slowest_pair(measured, indices)
    return {key: round(value, 2) for key, value in kept.items()} | (
        {PAIR: round(slowest / 1e6, 2)} if slowest is not None else {}
    )


def slowest_pair(measured: Ceilings | None, indices: Sequence[int]) -> float | None:
    """Bytes/s from GPU to GPU, of the pair and direction that is slowest; None where one was not measured."""
    if measured is None:
        return None
    rates = [measured.rate(f"peer/{sender}-{receiver}") for sender, receiver in permutations(indices, 2)]
    known = [rate for rate in rates if rate is not None]
    return min(known) if known and len(known) == len(rates) else None
