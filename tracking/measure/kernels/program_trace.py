"""Read a trace that a program wrote itself: Kineto's of PyTorch, XLA's of JAX and TensorFlow, or CUPTI's records.

All hold Chrome's trace events. Kineto marks kernels by a category. XLA puts them on the threads "Stream #N" of the
processes "/device:GPU:N", beside derived threads such as "XLA Ops" that repeat the same time. A host launches kernels
long before they run, so all kernels of a trace count, from the first one's start to the last one's end. Kernels of an
earlier step may still run as the trace begins. They are left out: Kineto's traces hold no launch of them.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracking.base.number_text import significant
from tracking.measure.kernels.profile import UNMARKED
from tracking.measure.kernels.trace import DEVICE, LAUNCHES, STEP, Kernel, Span, Trace, parse
from tracking.measure.kernels.trace_summary import Summary, summarize

GZIP = b"\x1f\x8b"
GPU_PROCESS = re.compile(r"/device:GPU:(\d+)")
STREAM = "Stream #"
COPY = re.compile(r"mem(?:ory)?cpy ?([HDP])(?:2|to)([HDP])", re.IGNORECASE)  # MemcpyH2D, Memcpy HtoD (Pageable -> ...)
XLA_EVENTS = 1_000_000  # XLA writes no more events


def load(path: Path, max_bytes: float) -> Mapping[str, Any]:
    """The document of a file, packed or not. Raises OSError, and ValueError for a torn or large file, or no trace."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(int(max_bytes) + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: is torn: {error}. Next: let the program end its trace before it exits") from None
    if len(content) > max_bytes:
        raise ValueError(
            f"{path}: is larger than profile.trace_megabytes={max_bytes / 1e6:g} unpacked. Next: trace fewer steps,"
            " or give a larger value"
        )
    try:
        document = json.loads(content)
    except ValueError as error:
        raise ValueError(
            f"{path}: is torn, or not JSON ({error}). Next: let the program end its trace before it exits"
        ) from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"{path}: holds no traceEvents. Next: give a trace of torch.profiler or jax.profiler")
    return {"traceEvents": events}


def summary_of(document: Mapping[str, Any]) -> tuple[Summary, list[str]]:
    """The figures of a step, and notes on them. Raises ValueError for a trace without kernels."""
    try:
        return _summary_of(document["traceEvents"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"an event of the trace cannot be read ({type(error).__name__}: {error})") from None


def _summary_of(events: Sequence[Mapping[str, Any]]) -> tuple[Summary, list[str]]:
    complete = [event for event in events if event.get("ph") == "X" and "dur" in event]
    devices = _devices(events, _launched_within(complete))
    if not devices:
        if any(str(event.get("name")).startswith(STEP) for event in complete):
            return summarize(parse({"traceEvents": complete})), [
                "no kernel of a GPU is in the trace: the rows are operators of the CPU"
            ]
        raise ValueError("no kernel of a GPU is in the trace; also trace the GPU's activities, while the training runs")
    first = min(devices)
    kernels = [_kernel(event) for event in devices[first]]
    window = Span("kernels", min(each.begin for each in kernels), max(each.end for each in kernels))
    if window.end <= window.begin:
        raise ValueError("the kernels of the trace take no time")
    num_steps = _num_steps(complete)
    trace = Trace(True, window, num_steps or 1, kernels, phases=[], main=[])
    length = f"{significant((window.end - window.begin) / 1e3, 4)} ms"
    notes = [] if num_steps else [f"{UNMARKED}: times and calls are of the whole trace, {length}"]
    notes += [f"only the first of {len(devices)} GPUs is shown"] if len(devices) > 1 else []
    if len(complete) >= XLA_EVENTS:
        notes.append(
            "the trace has a million events, the most that XLA writes: kernels may be missing; trace fewer steps"
        )
    return replace(summarize(trace), gaps=[]), notes  # XLA's traces do not show the host's activity


def _launched_within(complete: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events without kernels that the host launched before the trace began; all events if no launch is known."""
    launches = {_correlation(event) for event in complete if event.get("cat") in LAUNCHES} - {None}
    kernel_launches = launches.intersection(_correlation(event) for event in complete if event.get("cat") in DEVICE)
    if not kernel_launches:
        return list(complete)
    return [
        event
        for event in complete
        if event.get("cat") not in DEVICE or _correlation(event) is None or _correlation(event) in launches
    ]


def _correlation(event: Mapping[str, Any]) -> Any:
    return event.get("args", {}).get("correlation")


def _devices(
    events: Sequence[Mapping[str, Any]], complete: Sequence[Mapping[str, Any]]
) -> dict[int, list[Mapping[str, Any]]]:
    """The kernels and copies of each GPU, by the GPU's number."""
    processes: dict[Any, int] = {}
    streams = set()
    for event in events:
        label = str(event.get("args", {}).get("name", "")) if event.get("ph") == "M" else ""
        if event.get("name") == "process_name" and (match := GPU_PROCESS.search(label)):
            processes[event["pid"]] = int(match[1])
        if event.get("name") == "thread_name" and label.startswith(STREAM):
            streams.add((event["pid"], event["tid"]))
    devices: dict[int, list[Mapping[str, Any]]] = {}
    for event in complete:
        if event.get("cat") in DEVICE:
            number = event.get("args", {}).get("device", event["pid"])
        elif event.get("pid") in processes and (event["pid"], event.get("tid")) in streams:
            number = processes[event["pid"]]
        else:
            continue
        devices.setdefault(number if isinstance(number, int) else 0, []).append(event)
    return devices


def _kernel(event: Mapping[str, Any]) -> Kernel:
    begin, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
    name = demangled(str(event["name"]))
    if match := COPY.match(name):
        name = f"Memcpy {match[1].upper()}to{match[2].upper()}"
    return Kernel(name, begin, end, launched=begin, pieces=(Span(name, begin, end),))


def _num_steps(complete: Sequence[Mapping[str, Any]]) -> int:
    """The number of marked steps: torch.profiler's by name, StepTraceAnnotation's by number."""
    names = {event["name"] for event in complete if str(event["name"]).startswith(STEP)}
    return len(names or {event["args"]["step_num"] for event in complete if "step_num" in event.get("args", {})})


def demangled(name: str) -> str:
    """A kernel's C++ name, from a linker's name as CUPTI gives it; other names stay as they are."""
    if not name.startswith("_Z"):
        return name
    with suppress(OSError, AttributeError):
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        demangle.restype = ctypes.c_void_p
        status = ctypes.c_int()
        if address := demangle(name.encode(), None, None, ctypes.byref(status)):
            try:
                return ctypes.string_at(address).decode(errors="replace")
            finally:
                free = ctypes.CDLL(None).free
                free.argtypes = [ctypes.c_void_p]
                free(address)
    return name
