"""The processes of a run, whether its worker was started anew or forked: then it is no child of its supervisor."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.commands import processes_of
from tracking.jobs.handover import SERVE
from tracking.record import run_folder


def workers_of(folder: Path, cwd: Path) -> list[psutil.Process]:
    """The worker of the run in `folder`, if it is alive. The launcher's working directory is `cwd`.

    The supervisor and the worker hold the run's lock and lead a session. The supervisor's input is a socket.
    """
    holders = [process for process in processes_of(cwd) if holds(process, folder / run_folder.RUN_LOCK)]
    return [each for each in holders if session_of(each) == each.pid and not input_of(each).startswith("socket:")]


def servers_in(cwd: Path) -> list[psutil.Process]:
    """The processes there that fork workers; not the forks, which have the same command."""
    there = [process for process in processes_of(cwd) if SERVE in process.cmdline()]
    forks = {child.pid for process in there for child in process.children(recursive=True)}
    return [process for process in there if process.pid not in forks]


def session_of(process: psutil.Process) -> int:
    """0 for one that has ended."""
    with suppress(ProcessLookupError):
        return os.getsid(process.pid)
    return 0


def input_of(process: psutil.Process) -> str:
    """The target of a process's standard input; empty if the process has ended."""
    with suppress(OSError):
        return str(Path(f"/proc/{process.pid}/fd/0").readlink())
    return ""


def holds(process: psutil.Process, path: Path) -> bool:
    """Whether the process has the file open."""
    with suppress(OSError):
        return any(descriptor.samefile(path) for descriptor in Path(f"/proc/{process.pid}/fd").iterdir())
    return False
