"""One trace of all ranks, which Perfetto shows below each other on one time axis.

For ranks on GPUs it holds the GPUs' activity and the phases of steps. The host's calls are only in each rank's own
trace. For ranks on CPUs it holds everything. Ranks on one host share a clock; between hosts, clocks may differ.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracking.record import documents

NAME = "profile_trace.json.gz"
# The host's calls and the arrows between them: most of the events, kept only in a rank's own trace.
HOST_CATEGORIES = {"cpu_op", "cuda_runtime", "cuda_driver", "ac2g", "fwdbwd", "python_function"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
MAX_PROCESSES = 1000  # per rank: its own process, and one for each GPU


def part(document: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """A rank's part of the merged trace: its events, with unique process ids and times on the rank's own axis."""
    events = [event for event in document["traceEvents"] if event.get("ph") in ("X", "M")]
    if any(event.get("cat") in DEVICE for event in events):
        events = [event for event in events if event.get("cat") not in HOST_CATEGORIES]
    process_numbers: dict[str, int] = {}
    rank_events = [dict(_with_rank(event, rank, process_numbers)) for event in events]
    return {"base_ns": int(document.get("baseTimeNanoseconds", 0)), "events": rank_events}


def write(folder: Path, parts: Sequence[Path], max_bytes: float) -> int:
    """Merge the existing files of `part` into the folder's NAME, up to `max_bytes`; return the number of ranks.

    Times are relative to the first rank, which is always included. Raises OSError.
    """
    sources = [source for source in parts if source.exists()]
    while sum(source.stat().st_size for source in sources) > max_bytes and len(sources) > 1:
        sources.pop()
    with documents.replacing(folder / NAME) as file, gzip.GzipFile("", "wb", 6, file, 0) as packed:
        base_ns, separator = None, b""
        for source in sources:
            merged = json.loads(source.read_bytes())
            if base_ns is None:
                base_ns = merged["base_ns"]
                packed.write(b'{"baseTimeNanoseconds": %d, "displayTimeUnit": "ms", "traceEvents": [' % base_ns)
            if not merged["events"]:
                continue
            packed.write(separator)
            shift = (merged["base_ns"] - base_ns) / 1e3
            rows = (json.dumps(event | {"ts": event["ts"] + shift}) for event in merged["events"])
            packed.write(",\n".join(rows).encode())
            separator = b",\n"
        packed.write(b"]}" if sources else b'{"traceEvents": []}')
    return len(sources)


def _with_rank(event: Mapping[str, Any], rank: int, process_numbers: dict[str, int]) -> Iterator[tuple[str, Any]]:
    """The event's items, with a process number and name that are unique to this rank."""
    pid = str(event.get("pid"))
    number = process_numbers.setdefault(pid, len(process_numbers))
    yield from event.items()
    yield "pid", rank * MAX_PROCESSES + number
    if event.get("name") == "process_name":
        yield "args", {"name": f"rank {rank}: {event['args'].get('name', pid)}"}
    if event.get("name") == "process_sort_index":
        yield "args", {"sort_index": rank * MAX_PROCESSES + number}
