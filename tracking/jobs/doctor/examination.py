"""All findings in the order in which a run would meet them; and the checks of disk, data and Python."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tracking.jobs.doctor.finding import Finding
from tracking.jobs.doctor.gpus import CommandRunner, gpus, run
from tracking.jobs.doctor.tracking_server import tracking_server
from tracking.machine.environment import BYTECODE, cache, distrust, own_sources

MIN_FREE_GB = 5.0


@dataclass(frozen=True)
class Subject:
    """What to look at; `uri` may hold credentials."""

    uri: str
    experiment: str = "timetrial"
    runs_dir: Path = Path("runs")
    dataset_path: Path | None = None


def examine(asked: Subject, run: CommandRunner = run, free: Callable[[Path], int] | None = None) -> Iterator[Finding]:
    """Every finding, in the order in which a run would meet it; `run` and `free` are for tests."""
    yield from gpus(run)
    yield bytecode()
    yield from tracking_server(asked.uri, asked.experiment)
    for what, path in (("runs_dir", asked.runs_dir), ("cache", cache())):
        yield disk(what, path, free or (lambda place: shutil.disk_usage(place).free))
    if why := distrust(cache(), whole=False):
        yield Finding("cache", f"{why}; mend that, or set TIMETRIAL_CACHE to a folder of your own", ok=False)
    if asked.dataset_path is not None:
        yield dataset(asked.dataset_path)


def bytecode(package: str = "torch") -> Finding:
    """Whether PyTorch's bytecode exists or Python may keep it. Images often forbid that, to stay small."""
    sources = own_sources(package)
    if sources is None or sys.pycache_prefix or sources.have_bytecode(os.environ):
        return Finding("bytecode", "Python keeps it")
    mend = "unset PYTHONDONTWRITEBYTECODE, or compile the packages once (python -m compileall)"
    return Finding(
        "bytecode", f"Python keeps none. Workers keep theirs in {cache() / BYTECODE}; launchers compile anew: {mend}",
        tip=True,
    )  # fmt: skip


def disk(what: str, path: Path, free: Callable[[Path], int]) -> Finding:
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(what, f"{path}: {there} cannot be written to; give a folder that can", ok=False)
    gb = free(there) / 1e9
    if gb < MIN_FREE_GB:
        return Finding(what, f"{gb:.1f} GB free at {path}: make room, {MIN_FREE_GB:g} GB at least", ok=False)
    return Finding(what, f"{gb:.0f} GB free at {path}")


def dataset(path: Path) -> Finding:
    try:
        entries = sorted(path.iterdir())
        first = next((entry for entry in entries if entry.is_file()), None)
        if first:
            with first.open("rb") as file:
                file.read(1)
    except OSError as error:
        return Finding("dataset", f"{path}: {error.strerror}; give a folder that you can read", ok=False)
    return Finding("dataset", f"{path}: {len(entries) or 'no'} files and folders", ok=bool(entries))
