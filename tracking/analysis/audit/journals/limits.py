"""Recompute the shares of a run's time from its journal's rows and the ceilings in its folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tracking.analysis.audit.arithmetic import EXACT
from tracking.analysis.audit.journals import waits
from tracking.analysis.audit.journals.run_files import file_content
from tracking.base import quantities

PREFIX = quantities.BOTTLENECK
FLOPS, INTENSITY = quantities.ROOFLINE_FLOPS_PER_SEC_PER_DEVICE, quantities.ROOFLINE_FLOPS_PER_BYTE
PREFIXES = (PREFIX, quantities.UTILIZATION, quantities.CEILINGS, quantities.ROOFLINE)
SHARE_DIGITS, DIGITS = 4, 2  # decimals of a journaled share, and of journaled metrics that begin with one of ROUNDED
ROUNDED = (quantities.UTILIZATION, quantities.CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC)
# The sensor of each metric, without its GPU and unit of percent.
UTILIZATION = {
    quantities.UTILIZATION_GPU_UTILIZATION_PERCENTAGE: "utilization",
    quantities.UTILIZATION_GPU_SM_ACTIVITY_PERCENTAGE: "sm_activity",
    quantities.UTILIZATION_GPU_TENSOR_ACTIVITY_PERCENTAGE: "tensor_activity",
    quantities.UTILIZATION_GPU_DRAM_BANDWIDTH_PERCENTAGE: "dram_bandwidth",
    quantities.UTILIZATION_GPU_NVLINK_TRANSMIT_MEGABYTES_PER_SEC: "nvlink_transmit_megabytes_per_sec",
    quantities.UTILIZATION_GPU_PCIE_TRANSMIT_MEGABYTES_PER_SEC: "pcie_transmit_megabytes_per_sec",
    quantities.UTILIZATION_RUN_CPU_PERCENTAGE: "run_cpu",
    quantities.UTILIZATION_CPU_MEMORY_MEGABYTES_PER_SEC: "cpu_memory_megabytes_per_sec",
}
# Sensors that only a run on GPUs has.
ON_GPU = {
    "utilization", "memory_usage", "power_usage", "engine_activity", "sm_activity", "dram_bandwidth", "tensor_activity",
    "sm_clock", "power_throttled", "thermal_throttled", "fp32_activity",
}  # fmt: skip
Row = Mapping[str, Any]
Spans = list[tuple[float, float]]


def shares(rows: Sequence[Row], folder: Path) -> dict[str, float]:
    """The share of each cause; empty without a timed window."""
    events, timed, total = _of_the_clock(rows)
    if not total:
        return {}
    spans = _training(timed)
    training = sum(end - start for start, end in spans) / total
    taken = {name: _between(timed, key) / total for name, key in (("evaluation", "eval"), ("checkpoint", "checkpoint"))}
    left = training
    noted = {key for row in rows if row["kind"] == "metrics" for key in row["values"] if key.startswith(PREFIX)}
    phases = {name: share for name, share in _phases(rows, total).items() if quantities.bottleneck(name) in noted}
    for name, share in _in_order(timed, events, rows, folder, spans, training, total, phases):
        if noted and quantities.bottleneck(name) not in noted:  # An earlier version did not know the cause.
            continue
        taken[name] = max(0.0, min(left, share))
        left -= taken[name]
    taken["unknown"] = max(0.0, 1.0 - sum(taken.values()))
    return taken


def utilization(rows: Sequence[Row], folder: Path) -> dict[str, float]:
    """The means over the training by metric, and the slowest pair's copy."""
    _, timed, total = _of_the_clock(rows)
    means = _means(rows, _training(timed)) if total else {}
    busy = {key: means[name] for key, name in UTILIZATION.items() if name in means}
    slowest = _slowest_pair(folder) if total else None
    copied = {} if slowest is None else {quantities.CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC: slowest / 1e6}
    return busy | copied


def rounded(value: float | None, digits: int, journaled: float | None) -> float | None:
    """The value rounded to `digits` decimals; if it lies halfway between two, the journaled one."""
    if value is None:
        return None
    near = round(value, digits)
    is_middle = math.isclose(abs(value - near), 0.5 * 10**-digits, rel_tol=0.0, abs_tol=EXACT * max(1.0, abs(value)))
    either = {near, round(value + math.copysign(0.6 * 10**-digits, value - near), digits)} if is_middle else {near}
    return journaled if journaled in either else near


def place(rows: Sequence[Row], folder: Path) -> dict[str, float]:
    """The run's place under the roofline, by metric: FLOP/s of a device, and FLOPs per byte of the GPU's memory.

    Also the FLOP/s as a share of the measured matrix product's, if the folder has that ceiling.
    """
    events, timed, total = _of_the_clock(rows)
    flops = next((row["values"] for row in events if row["key"] == "model_flops"), None)
    windows = [row["values"] for row in events if row["key"] == "throughput_window" and row["values"].get("rank_ms")]
    seconds = sum(max(window["rank_ms"]) for window in windows) / 1e3
    if not total or flops is None or not seconds:
        return {}
    samples = sum(window["samples"] for window in windows)
    figures = {FLOPS: samples / seconds * flops["per_sample"] / flops["num_devices"]}
    kept, precision = _kept(folder), [row["values"].get("precision") for row in rows if row["kind"] == "params"]
    if product := kept.get(f"matmul/{precision[-1] if precision else None}"):
        figures[quantities.CEILINGS_FLOPS_UTILIZATION] = figures[FLOPS] / product["median"]
    moved, copied = _means(rows, _training(timed)).get("dram_bandwidth"), kept.get("copy", {})
    percentage = copied.get("counters", {}).get("dram_bandwidth_percentage")
    if moved and percentage:
        figures[INTENSITY] = figures[FLOPS] / (moved * copied["median"] / percentage)
    return figures


def _kept(folder: Path) -> dict[str, Any]:
    """The ceilings in the folder, by name."""
    kept: dict[str, Any] = file_content(folder / "ceilings.json").get("ceilings", {})
    return kept


def _slowest_pair(folder: Path) -> float | None:
    """Bytes/s of the slowest copy between two of the GPUs that the fingerprint names as used."""
    ceilings = _kept(folder)
    used = [gpu["index"] for gpu in file_content(folder / "fingerprint.json").get("used", []) if "index" in gpu]
    pairs = [f"peer/{sender}-{receiver}" for sender in used for receiver in used if sender != receiver]
    return min(ceilings[pair]["median"] for pair in pairs) if pairs and ceilings.keys() >= set(pairs) else None


def _newest_attempt(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows since the newest resume: the machine's clock may have restarted before it."""
    return rows[max((place for place, row in enumerate(rows) if row.get("key") == "resume"), default=0) :]


def _of_the_clock(rows: Sequence[Row]) -> tuple[list[Row], list[Row], float]:
    """The events of the last attempt, those within its timed window, and its length (0 without one)."""
    events = [row for row in _newest_attempt(rows) if row["kind"] == "event"]
    at = {row["key"]: row["clock_sec"] for row in reversed(events)}
    if "run_start" not in at or "run_stop" not in at:
        return events, [], 0.0
    begin, end = at["run_start"], at["run_stop"]
    return events, [row for row in events if begin <= row["clock_sec"] <= end], end - begin


def _in_order(
    timed: Sequence[Row], events: Sequence[Row], rows: Sequence[Row], folder: Path, spans: Spans, training: float,
    total: float, phases: Mapping[str, float],
) -> Iterator[tuple[str, float]]:  # fmt: skip
    """The causes with their shares, in order of deduction: what ranks waited for, then what the counters saw."""
    windows = [row["values"] for row in timed if row["key"] == "throughput_window"]
    late, collected, updated = (waits.sums(windows, f"rank_{name}_ms") for name in ("wait", "gc", "update"))
    data = max(0.0, max(late, default=0.0) / 1e3 / total - phases.get("selfplay", 0.0))
    gc = max(collected, default=0.0) / 1e3 / total
    if late:
        yield "data", data
    yield from _exchange(windows, events, total)
    if collected:
        yield "gc", gc
    if waits.exchanges(windows):
        is_named = waits.is_beyond_noise(windows) or waits.was_journaled("imbalance", rows)
        yield "imbalance", is_named * waits.waited_in_vain(windows) / 1e3 / total
    means = _means(rows, spans)
    if "engine_activity" in means:
        yield "host", training * (1 - means["engine_activity"] / 100) - min(training, data + gc)
    for name, share in phases.items():
        yield name, share * means.get("engine_activity", 100) / 100
    training = max(0.0, training - sum(phases.values()))
    yield from _by_counters(means, _reached(rows, folder), training)
    if not ON_GPU & means.keys():
        yield from waits.on_cores(means, max(updated) / 1e3 / total if updated else None, training)


def _exchange(windows: Sequence[Row], events: Sequence[Row], total: float) -> Iterator[tuple[str, float]]:
    """The exchange of gradients: the shortest time of a rank, or the measured mean of one times the steps."""
    exchanges = waits.exchanges(windows)
    measured = [row["values"]["mean_ms"] for row in events if row["key"] == "gradient_exchange"]
    if any(exchanges):
        yield "exchange", min(exchanges) / 1e3 / total
    elif measured:
        steps = sum(len(window.get("step_ms") or []) for window in windows)
        yield "exchange", measured[0] * steps / 1e3 / total


def _by_counters(
    means: Mapping[str, float], reached: Mapping[str, float], training: float
) -> Iterator[tuple[str, float]]:
    """The work of memory and cores, and what kept a GPU from more; `reached` as from `_reached`."""
    work = {"dram": "dram_bandwidth", "tensor": "tensor_activity", "fp32": "fp32_activity"}
    parts = {name: training * means[work[name]] / most for name, most in reached.items() if work[name] in means}
    yield from sorted(parts.items(), key=lambda part: -part[1])
    if "sm_clock" in means:
        held = max(means.get("power_throttled", 0.0), means.get("thermal_throttled", 0.0))
        yield "power", training * held / 100 * (1 - means["sm_clock"] / 100)
    if {"engine_activity", "sm_activity"} <= means.keys():
        yield "kernels", max(0.0, training * (means["engine_activity"] - means["sm_activity"]) / 100)
    if "sm_activity" in means and parts:
        yield "latency", max(0.0, training * means["sm_activity"] / 100 - sum(parts.values()))


def _phases(rows: Sequence[Row], total: float) -> dict[str, float]:
    """Shares of self-play and of the gate's matches, from what MiniGo logs each generation."""
    seconds: dict[str, float] = {}
    for row in _newest_attempt(rows):
        for name in ("selfplay", "gate") if row["kind"] == "metrics" else ():
            if f"{name}/sec" in row["values"]:
                seconds[name] = seconds.get(name, 0.0) + row["values"][f"{name}/sec"]
    return {name: seconds[name] / total for name in ("selfplay", "gate") if name in seconds}


def _training(timed: Sequence[Row]) -> Spans:
    """The spans of training: the epochs without the evaluations and checkpoints in them."""
    spans: Spans = []
    since = None
    for row in timed:
        if row["key"] in ("epoch_start", "eval_stop", "checkpoint_stop"):
            since = row["clock_sec"]
        elif row["key"] in ("epoch_stop", "eval_start", "checkpoint_start", "run_stop") and since is not None:
            spans.append((since, row["clock_sec"]))
            since = None
    return spans


def _between(timed: Sequence[Row], name: str) -> float:
    starts, stops = ([row["clock_sec"] for row in timed if row["key"] == f"{name}_{end}"] for end in ("start", "stop"))
    total: float = sum(stop - start for start, stop in zip(starts, stops, strict=False))
    return total


def _means(rows: Sequence[Row], spans: Spans) -> dict[str, float]:
    """The means of the percentage sensors within the spans, over all GPUs, by name without `gpu_N_`."""
    sampled = [
        row for row in _newest_attempt(rows) if row["kind"] == "metrics" and any(_own(key) for key in row["values"])
    ]
    sums: dict[str, list[float]] = {}
    for before, row in pairwise(sampled):
        start, end = before["clock_sec"], row["clock_sec"]
        inside = sum(max(0.0, min(end, last) - max(start, first)) for first, last in spans)
        if not inside or inside < (end - start) / 2:
            continue
        here: dict[str, list[float]] = {}
        for key, value in row["values"].items():
            name = key.removeprefix(quantities.SYSTEM).removesuffix("_percentage")
            if name != key and name.startswith("gpu_"):
                name = name.split("_", 2)[2]
            here.setdefault(name, []).append(value)
        for name, values in here.items():
            weighed = sums.setdefault(name, [0.0, 0.0])
            weighed[0] += inside * sum(values) / len(values)
            weighed[1] += inside
    return {name: total / weight for name, (total, weight) in sums.items()}


def _own(key: str) -> bool:
    return key.startswith(quantities.SYSTEM) and key.count("/") == 1


def _reached(rows: Sequence[Row], folder: Path) -> dict[str, float]:
    """The counters' values at the measured ceilings; 100 without a measurement."""
    kept = _kept(folder)
    precision = next((row["values"]["precision"] for row in rows if "precision" in row["values"]), "")
    if precision == "own" and any(quantities.bottleneck("fp32") in row["values"] for row in rows):
        precision = "fp32"  # The script left the tensor cores idle. Earlier versions do not count its fp32 cores.
    copied, multiplied = (kept.get(name, {}).get("counters", {}) for name in ("copy", f"matmul/{precision}"))
    counters = {
        "dram": copied.get("dram_bandwidth_percentage"), "tensor": multiplied.get("tensor_activity_percentage"),
    }  # fmt: skip
    if precision == "fp32":
        counters["fp32"] = multiplied.get("fp32_activity_percentage")
    return {name: value or 100.0 for name, value in counters.items()}
