"""The commits of what ran: of the repository of a user's script or program, and of timetrial's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracking.base import installation
from tracking.machine.environment import host
from tracking.record import documents

GIT_FILE = "TIMETRIAL_GIT"  # It holds the path of a file with these parts, as the launcher of a container sees them.
Parts = dict[str, dict[str, Any]]
Start = Callable[[Sequence[str], Path | None], host.Output]


def ask(folder: Path | None = None, start: Start = host.start) -> Callable[[], Parts]:
    """Start git's commands at once. The function returned waits for them and returns parts of a fingerprint.

    `git` is of the repository that holds `folder`, and `timetrial` has the commit of this code. Without a folder `git`
    is of this code. A part that is not known is left out.
    """
    own = _own(start)
    theirs = None if folder is None else _answers(folder, start)

    def parts() -> Parts:
        mine = own()
        known = {"git": mine}
        if theirs is not None:
            known = {"git": theirs(), "timetrial": {key: mine[key] for key in ("commit", "dirty") if key in mine}}
        return {name: part for name, part in known.items() if part}

    return parts


def _own(start: Start) -> Callable[[], dict[str, Any]]:
    """Of this code. The folder of an installation may lie in a repository, but that is somebody else's."""
    return installation.built_from if installation.PREFIX else _answers(installation.CODE, start)


def _answers(folder: Path, start: Start) -> Callable[[], dict[str, Any]]:
    outputs = [start(command, folder) for command in host.GIT_COMMANDS.values()]
    return lambda: host.parse_git(*(output() for output in outputs))


def told(environ: Mapping[str, str]) -> Parts | None:
    """The parts that the launcher wrote for this worker, whose image may hold no git; None where it wrote none."""
    with suppress(OSError, ValueError, KeyError):
        parts: Parts = documents.read_json(Path(environ[GIT_FILE]))
        return parts
    return None


def tags(fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """`git.commit`, `git.dirty`, `timetrial.commit` and `timetrial.dirty`, as far as they are known."""
    values = {}
    for name in ("git", "timetrial"):
        part = fingerprint.get(name, {})
        if part.get("commit"):
            values[f"{name}.commit"] = str(part["commit"])
        if "dirty" in part:
            values[f"{name}.dirty"] = "true" if part["dirty"] else "false"
    return values
