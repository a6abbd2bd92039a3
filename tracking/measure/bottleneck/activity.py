"""Sensor readings of a run's training: means over the samples within it, totals, peaks, and the hardware's utilisation.

Pure arithmetic on a journal's records. A sample holds means since the previous sample, so it covers the time between.
The utilisation of a GPU's links is their traffic, beside the copy between the slowest pair of the GPUs in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations

from tracking.base import quantities
from tracking.measure.bottleneck.ceilings import Ceilings
from tracking.record import Record

Span = tuple[float, float]  # seconds of the monotonic clock
SYSTEM = quantities.SYSTEM
GPU = re.compile(r"gpu_\d+_(\w+)")
GPU_INDEX = re.compile(r"gpu_(\d+)_")
RATE = re.compile(r"(?:gpu_\d+_)?(\w+)_megabytes_per_sec")
MIN_COVERED_SHARE = 0.5  # the share of a sample's time that has to be training for the sample to count
PREFIX = quantities.UTILIZATION
PAIR = quantities.CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC


def samples(records: Sequence[Record], node: str = "") -> Iterator[tuple[Span, Mapping[str, float]]]:
    """Each sample of a node's sensors with its time, by sensor name. The head node ("") has no node name in its keys.

    The first sample is skipped: its start is unknown.
    """
    prefix = f"{SYSTEM}{node}/" if node else SYSTEM
    readings = [(record, _sensor_values(record, prefix)) for record in records if record.kind == "metrics"]
    for (before, _), (record, values) in pairwise((record, values) for record, values in readings if values):
        yield (before.clock_sec, record.clock_sec), values


def _sensor_values(record: Record, prefix: str) -> dict[str, float]:
    values = {key.removeprefix(prefix): value for key, value in record.values.items() if key.startswith(prefix)}
    return {name: value for name, value in values.items() if "/" not in name}


def means(records: Sequence[Record], spans: Sequence[Span]) -> dict[str, float]:
    """The mean of each sensor within `spans`. GPU sensors are averaged over all GPUs in use, as `gpu_...`.

    A sample is weighted by its time within the spans, and counts only if at least half of its time lies there.
    """
    return _weighted_means([(covered, _mean_over_gpus(values)) for covered, values in _within(records, spans, "")])


def highest(records: Sequence[Record], sensor: str) -> float:
    """The highest value of a GPU sensor in any sample of any GPU in use; 0 without one."""
    gpu_values = ((GPU.fullmatch(key), value) for _, values in samples(records) for key, value in values.items())
    return max((value for match, value in gpu_values if match and match[1] == sensor), default=0.0)


def by_gpu(records: Sequence[Record], spans: Sequence[Span], node: str = "") -> dict[int, dict[str, float]]:
    """The means of each GPU's sensors within `spans`: by the GPU's index on its node, then by name without `gpu_N_`."""
    rows = list(_within(records, spans, node))
    indices = {int(match[1]) for _, values in rows for key in values if (match := GPU_INDEX.match(key))}
    prefixes = {index: f"gpu_{index}_" for index in sorted(indices)}
    return {
        index: _weighted_means(
            [
                (covered, {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)})
                for covered, values in rows
            ]
        )
        for index, prefix in prefixes.items()
    }


def _within(records: Sequence[Record], spans: Sequence[Span], node: str) -> Iterator[tuple[float, Mapping[str, float]]]:
    """Each sample that counts, with its seconds within the spans."""
    for span, values in samples(records, node):
        covered = sum(_overlap(span, other) for other in spans)
        if covered and covered >= MIN_COVERED_SHARE * (span[1] - span[0]):
            yield covered, values


def _weighted_means(rows: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    totals: dict[str, list[float]] = {}
    for covered, values in rows:
        for key, value in values.items():
            total = totals.setdefault(key, [0.0, 0.0])
            total[0] += covered * value
            total[1] += covered
    return {key: total / weight for key, (total, weight) in totals.items()}


def traffic(records: Sequence[Record], span: Span, node: str = "") -> dict[str, float]:
    """`traffic/NAME_total_megabytes` and `traffic/NAME_peak_megabytes_per_sec` of all data rates, summed over GPUs.

    The keys of a non-head node begin with `traffic/NODE/`.
    """
    prefix = f"{quantities.TRAFFIC}{node}/" if node else quantities.TRAFFIC
    figures: dict[str, float] = {}
    for span_of_sample, values in samples(records, node):
        seconds = _overlap(span_of_sample, span)
        rates: dict[str, float] = {}
        for key, value in values.items():
            if match := RATE.fullmatch(key):
                rates[match[1]] = rates.get(match[1], 0.0) + value
        for name, rate in rates.items():
            if seconds and rate:
                total, peak = f"{prefix}{name}_total_megabytes", f"{prefix}{name}_peak_megabytes_per_sec"
                figures[total] = figures.get(total, 0.0) + rate * seconds
                figures[peak] = max(figures.get(peak, 0.0), rate)
    return figures


def _mean_over_gpus(values: Mapping[str, float]) -> dict[str, float]:
    by_name: dict[str, list[float]] = {}
    for key, value in values.items():
        match = GPU.fullmatch(key)
        by_name.setdefault(f"gpu_{match[1]}" if match else key, []).append(value)
    return {key: sum(row) / len(row) for key, row in by_name.items()}


def _overlap(span: Span, other: Span) -> float:
    return max(0.0, min(span[1], other[1]) - max(span[0], other[0]))


def utilization(means: Mapping[str, float], measured: Ceilings | None, indices: Sequence[int]) -> dict[str, float]:
    """The metrics by MLflow key. `means` come from `activity.means`, `indices` are the GPUs in use."""
    sensors = {key: key.removeprefix(PREFIX) for key in quantities.OF_HARDWARE}
    values = {key: means[sensor] for key, sensor in sensors.items() if sensor in means}
    slowest = slowest_pair(measured, indices)
    return {key: round(value, 2) for key, value in values.items()} | (
        {PAIR: round(slowest / 1e6, 2)} if slowest is not None else {}
    )


def slowest_pair(measured: Ceilings | None, indices: Sequence[int]) -> float | None:
    """Bytes/s from GPU to GPU for the slowest pair and direction; None if a pair was not measured."""
    if measured is None:
        return None
    rates = [measured.rate(f"peer/{sender}-{receiver}") for sender, receiver in permutations(indices, 2)]
    known = [rate for rate in rates if rate is not None]
    return min(known) if known and len(known) == len(rates) else None
