"""The traces of several ranks as one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tracking.measure.kernels import merged_trace
from tracking.record import documents


def document(base_ns: int, *cats: str) -> dict[str, Any]:
    named = {"ph": "M", "name": "process_name", "ts": 1.0, "pid": 71, "tid": 0, "args": {"name": "python"}}
    rows = [
        {"ph": "X", "cat": cat, "name": cat, "pid": 0 if cat == "kernel" else 71, "tid": 7, "ts": 10.0, "dur": 1.0}
        for cat in cats
    ]
    return {"baseTimeNanoseconds": base_ns, "traceEvents": [named, *rows, {"ph": "f", "id": 1, "name": "x"}]}


def merged(folder: Path, most_bytes: float, *documents_: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    parts = []
    for rank, each in enumerate(documents_):
        parts.append(folder / f"{rank}.json")
        documents.write_json(parts[-1], merged_trace.part(each, rank))
    number = merged_trace.write(folder, parts, most_bytes)
    return number, json.loads(gzip.decompress((folder / merged_trace.NAME).read_bytes()))["traceEvents"]


def test_ranks_have_processes_of_their_own_on_the_time_axis_of_the_first(tmp_path: Path) -> None:
    number, events = merged(tmp_path, 1e9, document(5_000_000, "cpu_op"), document(7_000_000, "cpu_op"))
    assert number == 2
    spans = [event for event in events if event["ph"] == "X"]
    assert [event["ts"] for event in spans] == [10.0, 10.0 + 2000.0]
    assert len({event["pid"] for event in spans}) == 2
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [names[event["pid"]] for event in spans] == ["rank 0: python", "rank 1: python"]


def test_of_a_gpu_it_has_kernels_and_phases_and_not_what_the_host_called(tmp_path: Path) -> None:
    _, events = merged(tmp_path, 1e9, document(0, "kernel", "user_annotation", "cpu_op", "cuda_runtime"))
    assert [event["cat"] for event in events if event["ph"] == "X"] == ["kernel", "user_annotation"]


def test_ranks_that_make_it_too_large_are_left_out_and_counted(tmp_path: Path) -> None:
    number, events = merged(tmp_path, 10, document(0, "cpu_op"), document(0, "cpu_op"))
    assert number == 1
    assert len([event for event in events if event["ph"] == "X"]) == 1
    assert merged_trace.write(tmp_path, [tmp_path / "none.json"], 1e9) == 0


def test_a_first_rank_without_events_leaves_a_trace_that_can_be_read(tmp_path: Path) -> None:
    empty = {"baseTimeNanoseconds": 5, "traceEvents": []}
    number, events = merged(tmp_path, 1e9, empty, document(0, "cpu_op"), empty, document(0, "cpu_op"))
    assert number == 4
    assert len([event for event in events if event["ph"] == "X"]) == 2
