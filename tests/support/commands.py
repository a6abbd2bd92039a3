"""Runs launch.py as a user does, in a folder of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.support import forked
from tracking.record import journal, run_folder
from tracking.record.journal import Record

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = str(ROOT / "launch.py")
HANGS_SEC = 900.0  # a limit that only ends what hangs, however slow or busy the machine is
TINY = ("--config-dir", str(ROOT / "tests/workloads/conf"), "model=tiny")


def environment(**extra: str) -> dict[str, str]:
    """The test's environment without what would lead the run elsewhere."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, **extra}


@dataclass
class Launched:
    """What a finished command left: its exit code, its words, and its folder."""

    code: int
    output: str
    cwd: Path
    folders: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        (only,) = self.folders
        return only

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.folder / run_folder.RESULT).read_text())
        return result


def limited(max_file_bytes: int) -> list[str]:
    """The words before a command none of whose files shall grow beyond; none for 0.

    Python would cut compiled modules short as well, in the cache of all tests, and later ones could not load them.
    """
    return ["env", "PYTHONDONTWRITEBYTECODE=1", "prlimit", f"--fsize={max_file_bytes}"] if max_file_bytes else []


def start(cwd: Path, *arguments: str, max_file_bytes: int = 0, **extra_env: str) -> subprocess.Popen[str]:
    """Start launch.py. With `max_file_bytes` none of its files can grow beyond, as if the disk were full for each."""
    return subprocess.Popen(
        [*limited(max_file_bytes), sys.executable, LAUNCH, *arguments],
        cwd=cwd,
        env=environment(**extra_env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def collect(process: forked.Forked | subprocess.Popen[str], cwd: Path, timeout_sec: float = HANGS_SEC) -> Launched:
    output, _ = process.communicate(timeout=timeout_sec)
    return launched(process.wait(), output, cwd)


def launched(code: int, output: str, cwd: Path) -> Launched:
    # Sweeps have no config of their own, and artifacts no run.json.
    folders = sorted(path.parent for path in cwd.rglob(run_folder.RUN) if (path.parent / run_folder.CONFIG).exists())
    return Launched(code, output, cwd, folders)


def begin(
    cwd: Path, *arguments: str, max_file_bytes: int = 0, **extra_env: str
) -> forked.Forked | subprocess.Popen[str]:
    """As `start`, without the time that Python takes to import all, where a fork tells the same."""
    if not forked.possible():
        return start(cwd, *arguments, max_file_bytes=max_file_bytes, **extra_env)
    return forked.Forked(arguments, cwd, environment(**extra_env), max_file_bytes)


def launch(cwd: Path, *arguments: str, **extra_env: str) -> Launched:
    """Run launch.py to its end."""
    return collect(begin(cwd, *arguments, max_file_bytes=0, **extra_env), cwd)


def processes_of(cwd: Path) -> list[psutil.Process]:
    """Every process that works in this folder."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(cwd) and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except psutil.Error:
            continue  # it ended meanwhile
    return processes


def kill_all(cwd: Path) -> None:
    """Kill every process that works in this folder, and wait until the kernel has ended them."""
    deadline = time.monotonic() + HANGS_SEC
    while left := processes_of(cwd):
        assert time.monotonic() < deadline, left
        for process in left:
            with suppress(psutil.Error):  # it ended meanwhile
                process.kill()
        psutil.wait_procs(left, timeout=1)


def events(folder: Path, key: str) -> list[Record]:
    return [event for event in journal.events(folder / run_folder.JOURNAL) if event.key == key]
