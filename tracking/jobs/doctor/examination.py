"""All findings in the order in which a run would meet them; and the checks of disk, data and Python."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tracking.jobs.doctor.finding import Finding
from tracking.jobs.doctor.gpus import gpus, run
from tracking.jobs.doctor.tracking_server import tracking_server
from tracking.machine.environment import BYTECODE, cache, distrust, own_sources

MIN_FREE_GB = 5.0


@dataclass(frozen=True)
class Subject:
    """The server, folders and data to examine; `uri` may hold credentials."""

    uri: str
    experiment: str = "timetrial"
    runs_dir: Path = Path("runs")
    dataset_path: Path | None = None


def examine(subject: Subject) -> Iterator[Finding]:
    """Every finding, in the order in which a run would meet it."""
    yield from gpus(run)
    yield bytecode()
    yield from tracking_server(subject.uri, subject.experiment)
    for what, path in (("runs_dir", subject.runs_dir), ("cache", cache())):
        yield disk(what, path, lambda place: shutil.disk_usage(place).free)
    if why := distrust(cache(), whole=False):
        yield Finding("cache", f"{why}. Next: mend that, or set TIMETRIAL_CACHE to your own folder", ok=False)
    if subject.dataset_path is not None:
        yield dataset(subject.dataset_path)


def bytecode(package: str = "torch") -> Finding:
    """Whether PyTorch's bytecode exists or Python may keep it. Images often forbid that, to stay small."""
    sources = own_sources(package)
    if sources is None or sys.pycache_prefix or sources.have_bytecode(os.environ):
        return Finding("bytecode", "kept by Python")
    mend = "unset PYTHONDONTWRITEBYTECODE, or compile the packages once (python -m compileall)"
    return Finding(
        "bytecode",
        f"Python keeps none; workers keep theirs in {cache() / BYTECODE}, each launcher compiles anew. Next: {mend}",
        tip=True,
    )  # fmt: skip


def disk(what: str, path: Path, free: Callable[[Path], int]) -> Finding:
    """The finding on whether a folder can be written to and has MIN_FREE_GB."""
    existing = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(what, f"{path}: {existing} cannot be written to. Next: give another folder", ok=False)
    gb = free(existing) / 1e9
    if gb < MIN_FREE_GB:
        return Finding(what, f"{gb:.1f} GB free at {path}. Next: free {MIN_FREE_GB:g} GB at least", ok=False)
    return Finding(what, f"{gb:.0f} GB free at {path}")


def dataset(path: Path) -> Finding:
    """The finding on whether a dataset's folder can be read and holds something."""
    try:
        entries = sorted(path.iterdir())
        first = next((entry for entry in entries if entry.is_file()), None)
        if first:
            with first.open("rb") as file:
                file.read(1)
    except OSError as error:
        return Finding("dataset", f"{path}: {error.strerror}. Next: give a folder that you can read", ok=False)
    if not entries:
        return Finding("dataset", f"{path}: is empty. Next: give the folder of the data", ok=False)
    return Finding("dataset", f"{path}: {len(entries)} files and folders")
