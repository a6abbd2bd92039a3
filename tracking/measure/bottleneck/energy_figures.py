"""The energy of a training: of its GPUs by NVML, and of its hosts by RAPL if that is readable.

The GPUs' energy is in the run's result. A host's energy counter is among its sensors' samples. It is interpolated at
the ends of the timed window, and extrapolated after the last sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.record import Record, attempts, journal, node_records, run_folder

JOULES_PER_KWH = 3.6e6
HOST = "host_joules"
MIN_COVERED_SHARE = 0.9  # the share of the window that samples have to cover


def figures(folder: Path, records: Sequence[Record], start: Record, stop: Record) -> dict[str, float]:
    """The energy metrics by MLflow key. {} for a GPU run without GPU energy, and a CPU run without host energy.

    The hosts' energy is left out for a resumed run, since their counters started anew, and for a job beside others,
    since a counter covers the whole host. Raises OSError, ValueError.
    """
    result = run_folder.read_result(folder)
    if result is None or result.failure is not None:
        return {}
    config = run_folder.read_config(folder)
    measured, nodes = result.metrics, counters(folder, records, start)
    host_counters = [] if _why_no_host(config, records) or len(nodes) < config.nodes else nodes
    values: dict[str, float] = {}
    spans = {"": stop.clock_sec - start.clock_sec, "to_accuracy_": measured.get(quantities.TIME_TO_ACCURACY_SEC)}
    for name, sec in spans.items():
        host = None if sec is None or not host_counters else total(host_counters, sec)
        gpus = measured.get(f"{quantities.ENERGY}{name}joules")
        joules = [part for part in (gpus, host) if part is not None]
        if sec is None or not joules or (config.on_gpu() and gpus is None):
            continue
        values |= {} if host is None or name else {quantities.ENERGY_HOST_JOULES: host}
        kwh = sum(joules) / JOULES_PER_KWH
        values[f"{quantities.ENERGY}{name}kwh"] = kwh
        if (grams := config.instance.carbon_g_per_kwh) is not None:
            values[f"{quantities.ENERGY}{name}co2_grams"] = kwh * grams
    return values


def _why_no_host(config: RunConfig, records: Sequence[Record]) -> str:
    """Why a host's counter says nothing of this run; "" if it does."""
    if any(record.key == attempts.RESUME for record in records):
        return "the run was resumed, and its host's energy counter started anew"
    return "its host's energy counter is also that of the jobs beside it" if config.sweep.jobs_at_once != 1 else ""


def missing(folder: Path, records: Sequence[Record], metrics: Mapping[str, float], shared: bool) -> list[str]:
    """What is not known, and why: a run's energy without other processes, or the CO2 it asks for; [] if it failed.

    `shared`: co-tenants had a large share of the cores.
    """
    result = run_folder.read_result(folder)
    if result is None or result.failure is not None:
        return []
    if shared and quantities.ENERGY_HOST_JOULES in metrics:
        return ["energy without that of other processes, since the host's counter has theirs, too"]
    config = run_folder.read_config(folder)
    if config.instance.carbon_g_per_kwh is None or quantities.ENERGY_KWH in metrics:
        return []
    if config.on_gpu():
        return ["CO2, since these GPUs report no energy to NVML"]
    counter = "the host's energy counter (RAPL, /sys/class/powercap) is missing or root's, or has few samples"
    return [f"CO2, since {_why_no_host(config, records) or counter}"]


def counters(folder: Path, records: Sequence[Record], start: Record) -> list[list[tuple[float, float]]]:
    """For each node with a counter, its samples as (seconds since the clock's start, joules).

    The head node's seconds are monotonic. Other nodes' seconds follow the wall clock, which the nodes share.
    """
    records_by_node = {"": [replace(record, clock_sec=record.clock_sec - start.clock_sec) for record in records]}
    for file in node_records.other_journals(folder):
        other_records = (record for record, _ in journal.read(folder / file))
        on_clock = [replace(record, clock_sec=(record.time_ms - start.time_ms) / 1e3) for record in other_records]
        records_by_node[node_records.node_of(file)] = on_clock
    keys = {node: f"{quantities.SYSTEM}{node}/{HOST}" if node else quantities.SYSTEM + HOST for node in records_by_node}
    rows = [
        [(sample.clock_sec, float(sample.values[keys[node]])) for sample in samples if keys[node] in sample.values]
        for node, samples in records_by_node.items()
    ]
    return [row for row in rows if len(row) > 1]


def total(nodes: Sequence[Sequence[tuple[float, float]]], sec: float) -> float | None:
    """Joules of all nodes in the first `sec` seconds; None if a node's samples cover too little of them."""
    amounts = [between(row, sec) for row in nodes]
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


def between(row: Sequence[tuple[float, float]], sec: float) -> float | None:
    """Joules of one node in the first `sec` seconds; None if samples cover too little, or the counter fell."""
    first, last = max(0.0, row[0][0]), min(sec, row[-1][0])
    if last - first < MIN_COVERED_SHARE * sec or any(after < before for (_, before), (_, after) in pairwise(row)):
        return None
    return interpolate(row, sec) - interpolate(row, 0.0)


def interpolate(row: Sequence[tuple[float, float]], sec: float) -> float:
    """The counter at `sec`, on the line through the samples around it, or through the two nearest ones."""
    index = min(max(1, next((number for number, (when, _) in enumerate(row) if when >= sec), len(row))), len(row) - 1)
    (begin, low), (end, high) = row[index - 1], row[index]
    return low + (high - low) * (sec - begin) / (end - begin) if end > begin else low
