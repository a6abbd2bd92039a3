"""What limited the runs, and how busy they kept their hardware, as a report prints it, against the journals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracking.audit import limits
from tracking.audit.arithmetic import EXACT, moments_of, ratio, says, says_mean, tolerance
from tracking.audit.evidence import Evidence, name_of

# The cause under each heading of what limited the runs.
NAMES = {
    "waiting for data (%)": "data",
    "the GPU without work from the host (%)": "host",
    "exchange of gradients (%)": "exchange",
    "evaluation (%)": "evaluation",
    "checkpoints (%)": "checkpoint",
    "traffic of the GPU's memory (%)": "dram",
    "tensor cores (%)": "tensor",
    "cores for fp32 (%)": "fp32",
    "a clock that power or heat kept down (%)": "power",
    "the cores of the CPU (%)": "processor",
    "not known (%)": "unknown",
}
# The metric under each heading of how busy the hardware was, and of its speed.
BUSY = {
    "samples/s": "throughput/samples_per_sec",
    "time to accuracy (s)": "time/to_accuracy_sec",
    "GPU utilisation (%)": "utilization/gpu_utilization_percentage",
    "SM activity (%)": "utilization/gpu_sm_activity_percentage",
    "tensor cores active (%)": "utilization/gpu_tensor_activity_percentage",
    "DRAM bandwidth (%)": "utilization/gpu_dram_bandwidth_percentage",
    "NVLink, out of a GPU (MB/s)": "utilization/gpu_nvlink_transmit_megabytes_per_sec",
    "PCIe, out of a GPU (MB/s)": "utilization/gpu_pcie_transmit_megabytes_per_sec",
    "copy between the slowest pair (MB/s)": "ceilings/slowest_pair_megabytes_per_sec",
    "CPU cores busy (%)": "utilization/run_cpu_percentage",
    "CPU memory traffic (MB/s)": "utilization/cpu_memory_megabytes_per_sec",
}
OVER_FP32 = {
    "speed-up of the rate over fp32": "throughput/samples_per_sec",
    "speed-up over fp32": "time/to_accuracy_sec",
}


def limited(
    evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, str, bool]]:
    """Of every setting of which a run counts, the shares of its time, and the largest of them."""
    workload, axes = table["about"], evidence.report["by"]
    for row in rows:
        setting = {axis: row[axis] for axis in axes}
        means: dict[str, float] = {}
        for heading, text in row.items():
            if heading in axes or heading == "limited by":
                continue
            sample = evidence.shown(workload, setting, f"{limits.PREFIX}{NAMES[heading]}_fraction")
            yield f"{name_of(setting)}, {heading}", text, says_mean(sample, 100.0, text, EXACT)
            if moments := moments_of(sample, 1.0):
                means[heading.removesuffix(" (%)")] = moments[1]
        yield f"{name_of(setting)}, limited by", row["limited by"], row["limited by"] == largest(means)


def largest(means: Mapping[str, float]) -> str:
    """The cause that took most, where that is a quarter of the time and no less than what is not known."""
    unknown = "not known"
    causes = sorted((share, name) for name, share in means.items() if name != unknown)
    enough = causes and causes[-1][0] >= max(0.25, means.get(unknown, 0.0))
    return causes[-1][1] if enough else unknown


def busy(
    evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, str, bool]]:
    """Of every setting its means, and its speed over that of the same setting in fp32."""
    workload, axes = table["about"], evidence.report["by"]
    there = [{axis: row[axis] for axis in axes} for row in rows]
    for setting, row in zip(there, rows, strict=True):
        for heading, text in row.items():
            if heading in axes:
                continue
            if heading in OVER_FP32:
                good = _over_fp32(evidence, workload, setting, there, OVER_FP32[heading], text)
            else:
                key = BUSY[heading]
                good = says_mean(evidence.shown(workload, setting, key), 1.0, text, tolerance(key))
            yield f"{name_of(setting)}, {heading}", text, good


def _over_fp32(
    evidence: Evidence, workload: str, setting: dict[str, str], there: Sequence[dict[str, str]], key: str, text: str
) -> bool:
    base = {**setting, "precision": "fp32"}
    if "precision" not in setting or base not in there:
        return not text
    own, other = (evidence.sample(workload, side, key) for side in (setting, base))
    quotient = ratio(key, own, other, 1.0, setting == base)
    if quotient is None:
        return not text
    expected, sign = quotient
    signed = text.startswith(f"{sign} ") if sign else not text.startswith(("≥", "≤"))
    return signed and says(text, expected[0], expected[1:], tolerance(key))
