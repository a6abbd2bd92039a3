"""Traces the kernels of the process that it runs in, by CUPTI: copied as sitecustomize.py to a program's PYTHONPATH.

It imports only the standard library of Python 3.8 or newer, and cupti-python once the trace begins. It works in a
thread, so the program goes on. program_cupti.py reads its files in the folder $TIMETRIAL_CUPTI: `started-PID`, then
`trace-PID.json` in Chrome's format, or `error-PID.txt`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

GO = "go"  # the trace begins when this file exists; it holds the number of seconds
POLL_SEC = 0.1
BUFFER_BYTES = 8_388_608  # of CUPTI's records


def begin(folder: Path) -> None:
    write(folder, "started", "")
    threading.Thread(target=wait, args=(folder,), daemon=True).start()


def wait(folder: Path) -> None:
    while not (folder / GO).exists():
        time.sleep(POLL_SEC)
    try:
        if mapped("libcuda.so"):  # Launchers and data-loading workers do not use a GPU.
            events = trace(float((folder / GO).read_text()))
            write(folder, "trace", json.dumps({"traceEvents": events}))
    except BaseException as error:  # Any error is written down, and the program keeps running.
        write(folder, "error", f"{type(error).__name__}: {error}")


def trace(seconds: float) -> list[dict[str, Any]]:
    """The kernels, copies and memsets of the next `seconds`, as events of Chrome's trace. Raises RuntimeError."""
    cupti: Any = importlib.import_module("cupti.cupti")
    cupti.get_timestamp()  # The first call loads libcupti.
    loaded = mapped("libcupti.so")
    if len(loaded) > 1:
        raise RuntimeError(
            f"two libcupti are loaded, {' and '.join(loaded)}. Next: install the cupti-python of the framework's CUDA"
        )
    try:
        subscriber = cupti.subscribe(lambda *_: None, None)
    except cupti.cuptiError as error:
        if error.status == cupti.Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
            raise RuntimeError(
                "the program's own profiler holds CUPTI. Next: let the program write its trace, and give profile.file="
            ) from None
        raise
    try:
        records = collected(cupti, seconds)
    finally:
        cupti.unsubscribe(subscriber)
    if not records:
        raise RuntimeError(f"no kernel ran in {seconds:g} s. Next: give another profile.after_sec")
    base = min(record["ts"] for record in records)
    return [{**record, "ts": (record["ts"] - base) / 1e3, "dur": record["dur"] / 1e3} for record in records]


def collected(cupti: Any, seconds: float) -> list[dict[str, Any]]:
    """CUPTI's records of the next `seconds`, as events in nanoseconds."""
    records: list[dict[str, Any]] = []

    def completed(activities: Any) -> None:
        records.extend(event_of(cupti, activity) for activity in activities)

    kinds = [cupti.ActivityKind.CONCURRENT_KERNEL, cupti.ActivityKind.MEMCPY, cupti.ActivityKind.MEMSET]
    cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), completed)
    for kind in kinds:
        cupti.activity_enable(kind)
    time.sleep(seconds)
    for kind in kinds:
        cupti.activity_disable(kind)
    cupti.activity_flush_all(1)
    return [record for record in records if record["dur"] > 0]


def event_of(cupti: Any, activity: Any) -> dict[str, Any]:
    """An event copied from CUPTI's record, which lives no longer than its buffer."""
    category, name = "gpu_memset", "Memset"
    if activity.kind == cupti.ActivityKind.CONCURRENT_KERNEL:
        category, name = "kernel", activity.name
    elif activity.kind == cupti.ActivityKind.MEMCPY:
        category, name = "gpu_memcpy", f"Memcpy {cupti.ActivityMemcpyKind(activity.copy_kind).name}"
    return {
        "ph": "X", "cat": category, "name": name, "pid": int(activity.device_id), "tid": int(activity.stream_id),
        "ts": int(activity.start), "dur": int(activity.end) - int(activity.start),
    }  # fmt: skip


def mapped(name: str) -> list[str]:
    """The paths of this library that the process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({str(Path(line.split(None, 5)[5]).resolve()) for line in lines if f"/{name}" in line})


def write(folder: Path, kind: str, text: str) -> None:
    """Write a file of this process atomically, so that a reader never sees a part of it."""
    ending = {"trace": ".json", "error": ".txt"}.get(kind, "")
    path = folder / f"{kind}-{os.getpid()}{ending}"
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


def run_the_next() -> None:
    """Run the next sitecustomize on the path, if there is one: this one hides it."""
    here = Path(__file__).resolve().parent
    path = [folder for folder in sys.path if Path(folder).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    if Path(os.environ.get("TIMETRIAL_CUPTI", "/dev/null")).is_dir():
        begin(Path(os.environ["TIMETRIAL_CUPTI"]))
    run_the_next()
