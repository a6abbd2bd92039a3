"""One trace of all ranks, which Perfetto shows below each other on one time axis.

Of ranks on GPUs it has what the GPUs did, and the phases of steps; what each host called, the trace of a rank has. On
CPUs it has all. Ranks on one host share a clock; those of several hosts are as far apart as their clocks are.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracking.record import documents

NAME = "profile_trace.json.gz"
# What one rank's host called, which its own trace keeps: most of the events, and the arrows between them.
LEFT_OUT = {"cpu_op", "cuda_runtime", "cuda_driver", "ac2g", "fwdbwd", "python_function"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
MOST_PROCESSES = 1000  # of a rank: its own, and one for each GPU


def part(document: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """What a rank's trace gives to the merged one: its events with process ids of their own, in its own time."""
    events = [event for event in document["traceEvents"] if event.get("ph") in ("X", "M")]
    if any(event.get("cat") in DEVICE for event in events):
        events = [event for event in events if event.get("cat") not in LEFT_OUT]
    places: dict[str, int] = {}
    renamed = [dict(_of_rank(event, rank, places)) for event in events]
    return {"base_ns": int(document.get("baseTimeNanoseconds", 0)), "events": renamed}


def write(folder: Path, parts: Sequence[Path], most_bytes: float) -> int:
    """Merge the files of `part` that are there into the folder's NAME, in the time of the first, up to so many bytes.

    How many ranks it has; the first one always. Raises OSError.
    """
    chosen = [source for source in parts if source.exists()]
    while sum(source.stat().st_size for source in chosen) > most_bytes and len(chosen) > 1:
        chosen.pop()
    with documents.replacing(folder / NAME) as file, gzip.GzipFile("", "wb", 6, file, 0) as packed:
        base_ns, separator = None, b""
        for source in chosen:
            own = json.loads(source.read_bytes())
            if base_ns is None:
                base_ns = own["base_ns"]
                packed.write(b'{"baseTimeNanoseconds": %d, "displayTimeUnit": "ms", "traceEvents": [' % base_ns)
            if not own["events"]:
                continue
            packed.write(separator)
            shift = (own["base_ns"] - base_ns) / 1e3
            rows = (json.dumps(event | {"ts": event["ts"] + shift}) for event in own["events"])
            packed.write(",\n".join(rows).encode())
            separator = b",\n"
        packed.write(b"]}" if chosen else b'{"traceEvents": []}')
    return len(chosen)


def _of_rank(event: Mapping[str, Any], rank: int, places: dict[str, int]) -> Iterator[tuple[str, Any]]:
    """The event as one of this rank's: its process has a number and a name that no other rank has."""
    pid = str(event.get("pid"))
    place = places.setdefault(pid, len(places))
    yield from event.items()
    yield "pid", rank * MOST_PROCESSES + place
    if event.get("name") == "process_name":
        yield "args", {"name": f"rank {rank}: {event['args'].get('name', pid)}"}
    if event.get("name") == "process_sort_index":
        yield "args", {"sort_index": rank * MOST_PROCESSES + place}
