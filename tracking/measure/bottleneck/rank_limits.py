"""What each rank of a run waited for, and the rank that the others waited for, from the run's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracking.measure.bottleneck import activity, slow_rank
from tracking.measure.training import clock
from tracking.record import Record, documents, journal, node_records, run_folder

PLACES = "rank_places"  # tracking.measure.training's event with the places of the ranks
CO_TENANTS_OF_GPU = re.compile(r"gpu (\d+): ([^;]+)")  # in the tag `neighbours`


def of_run(
    folder: Path, records: Sequence[Record], events: Sequence[Record], spans: Sequence[activity.Span], neighbours: str
) -> dict[str, Any]:
    """`ranks`, and `slow_rank` if one holds up the others; {} for a single process."""
    all_ranks = slow_rank.ranks([event.values for event in events if event.key == "throughput_window"])
    if not all_ranks:
        return {}
    event = clock.first(events, PLACES)
    places = [dict(place) for place in event.values["ranks"]] if event else []
    sensors, indices = _gpu_sensors(folder, records, spans, places)
    result: dict[str, Any] = {"ranks": [_with_place(rank, places) for rank in all_ranks]}
    slowest = slow_rank.waited_for(all_ranks)
    by_gpu = {int(index): words for index, words in CO_TENANTS_OF_GPU.findall(neighbours)}
    co_tenants = by_gpu.get(indices.get(slowest[0].rank, -1), "") if slowest else ""
    slow = slow_rank.verdict(all_ranks, places, sensors, co_tenants)
    return result | ({"slow_rank": slow} if slow else {})


def _with_place(rank: slow_rank.Rank, places: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    node = places[rank.rank].get("node", "") if rank.rank < len(places) else ""
    return rank.plain() | {"node": node}


def _gpu_sensors(
    folder: Path, records: Sequence[Record], spans: Sequence[activity.Span], places: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, dict[str, float]], dict[int, int]]:
    """The means of each rank's GPU sensors, and the GPU indices of the head node's ranks, both by rank."""
    nodes = list(dict.fromkeys(str(place.get("node", "")) for place in places))
    sensors: dict[int, dict[str, float]] = {}
    indices: dict[int, int] = {}
    for node in nodes:
        is_head = node == nodes[0]
        by_gpu = activity.by_gpu(records, spans) if is_head else _other_node_by_gpu(folder, records, spans, node)
        by_uuid = _indices_by_uuid(folder) if is_head else {}
        ranks = [rank for rank, place in enumerate(places) if place.get("node") == node]
        for rank, index in zip(ranks, list(by_uuid.values()) or sorted(by_gpu), strict=False):
            index = by_uuid.get(str(places[rank].get("gpu", "")).removeprefix("GPU-"), index)
            sensors |= {rank: by_gpu[index]} if index in by_gpu else {}
            indices |= {rank: index} if is_head else {}
    return sensors, indices


def _other_node_by_gpu(
    folder: Path, records: Sequence[Record], spans: Sequence[activity.Span], node: str
) -> dict[int, dict[str, float]]:
    """`activity.by_gpu` of a non-head node, whose times are converted by the wall clock that the nodes share."""
    start = clock.first([record for record in records if record.kind == "event"], "run_start")
    path = folder / node_records.file_of(run_folder.JOURNAL, node)
    if start is None or not path.exists():
        return {}
    offset_sec = start.time_ms / 1e3 - start.clock_sec
    records_of_node = [replace(record, clock_sec=record.time_ms / 1e3) for record, _ in journal.read(path)]
    return activity.by_gpu(records_of_node, [(begin + offset_sec, end + offset_sec) for begin, end in spans], node)


def _indices_by_uuid(folder: Path) -> dict[str, int]:
    """The indices of the used GPUs in the head node's fingerprint, by UUID without `GPU-`."""
    try:
        used = documents.read_json(folder / run_folder.FINGERPRINT).get("used", [])
        return {str(gpu.get("uuid", "")).removeprefix("GPU-"): int(gpu["index"]) for gpu in used if "index" in gpu}
    except (OSError, ValueError, TypeError, AttributeError):  # missing or damaged
        return {}
