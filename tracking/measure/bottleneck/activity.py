"""What the sensors said while a run trained: means over the samples that lie in its training, totals and peaks.

Pure: from a journal's records. A sample holds means since the sample before it, so it stands for the time between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tracking.base import quantities
from tracking.record import Record

Span = tuple[float, float]  # seconds of the monotonic clock
SYSTEM = quantities.SYSTEM
GPU = re.compile(r"gpu_\d+_(\w+)")
OF_GPU = re.compile(r"gpu_(\d+)_")
RATE = re.compile(r"(?:gpu_\d+_)?(\w+)_megabytes_per_sec")
LEAST_COVERED = 0.5  # the share of a sample's time that has to be training for the sample to count


def samples(records: Sequence[Record], node: str = "") -> Iterator[tuple[Span, Mapping[str, float]]]:
    """Each sample of a node's sensors, by their names, but the first, of which it is not known when it began.

    The first node's keys have no name of a node in them.
    """
    prefix = f"{SYSTEM}{node}/" if node else SYSTEM
    named = [(record, _named(record, prefix)) for record in records if record.kind == "metrics"]
    for (before, _), (record, values) in pairwise((record, values) for record, values in named if values):
        yield (before.clock_sec, record.clock_sec), values


def _named(record: Record, prefix: str) -> dict[str, float]:
    own = {key.removeprefix(prefix): value for key, value in record.values.items() if key.startswith(prefix)}
    return {name: value for name, value in own.items() if "/" not in name}


def means(records: Sequence[Record], spans: Sequence[Span]) -> dict[str, float]:
    """The mean of each sensor within `spans`; a GPU's sensors are one, `gpu_...`, the mean of all GPUs in use.

    Samples count by how much of their time lies in the spans, and only if at least half of it does.
    """
    return _weighed([(covered, _over_gpus(values)) for covered, values in _within(records, spans, "")])


def by_gpu(records: Sequence[Record], spans: Sequence[Span], node: str = "") -> dict[int, dict[str, float]]:
    """By index of a node's GPU the means of its sensors within `spans`, by their names without `gpu_N_`."""
    rows = list(_within(records, spans, node))
    indices = {int(match[1]) for _, values in rows for key in values if (match := OF_GPU.match(key))}
    named = {index: f"gpu_{index}_" for index in sorted(indices)}
    return {
        index: _weighed(
            [
                (covered, {key.removeprefix(own): value for key, value in values.items() if key.startswith(own)})
                for covered, values in rows
            ]
        )
        for index, own in named.items()
    }


def _within(records: Sequence[Record], spans: Sequence[Span], node: str) -> Iterator[tuple[float, Mapping[str, float]]]:
    """Each sample that counts, with the seconds of it that lie in the spans."""
    for span, values in samples(records, node):
        covered = sum(_overlap(span, other) for other in spans)
        if covered and covered >= LEAST_COVERED * (span[1] - span[0]):
            yield covered, values


def _weighed(rows: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    totals: dict[str, list[float]] = {}
    for covered, values in rows:
        for key, value in values.items():
            total = totals.setdefault(key, [0.0, 0.0])
            total[0] += covered * value
            total[1] += covered
    return {key: total / weight for key, (total, weight) in totals.items()}


def traffic(records: Sequence[Record], span: Span, node: str = "") -> dict[str, float]:
    """`traffic/NAME_total_megabytes` and `traffic/NAME_peak_megabytes_per_sec` of whatever moved, summed over GPUs.

    Of a node but the first the keys begin with `traffic/NODE/`.
    """
    place = f"{quantities.TRAFFIC}{node}/" if node else quantities.TRAFFIC
    figures: dict[str, float] = {}
    for own, values in samples(records, node):
        seconds = _overlap(own, span)
        rates: dict[str, float] = {}
        for key, value in values.items():
            if match := RATE.fullmatch(key):
                rates[match[1]] = rates.get(match[1], 0.0) + value
        for name, rate in rates.items():
            if seconds and rate:
                total, peak = f"{place}{name}_total_megabytes", f"{place}{name}_peak_megabytes_per_sec"
                figures[total] = figures.get(total, 0.0) + rate * seconds
                figures[peak] = max(figures.get(peak, 0.0), rate)
    return figures


def _over_gpus(values: Mapping[str, float]) -> dict[str, float]:
    gathered: dict[str, list[float]] = {}
    for key, value in values.items():
        match = GPU.fullmatch(key)
        gathered.setdefault(f"gpu_{match[1]}" if match else key, []).append(value)
    return {key: sum(row) / len(row) for key, row in gathered.items()}


def _overlap(span: Span, other: Span) -> float:
    return max(0.0, min(span[1], other[1]) - max(span[0], other[0]))
