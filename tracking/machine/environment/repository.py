"""The commits of the running code: of the repository of a user's script or program, and of timetrial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracking.base import installation
from tracking.machine.environment import host
from tracking.record import documents

GIT_FILE = "TIMETRIAL_GIT"  # variable with the path of a file with these parts, written by a container's launcher
Parts = dict[str, dict[str, Any]]
Start = Callable[[Sequence[str], Path | None], host.Output]


def ask(folder: Path | None = None, start: Start = host.start) -> Callable[[], Parts]:
    """Start git's commands at once. Returns a function that waits for them and returns parts of a fingerprint.

    `git` describes the repository of `folder`, `timetrial` has the commit of this code. Without a folder, `git`
    describes this code. Unknown parts are left out.
    """
    of_timetrial = _of_code(start)
    of_folder = None if folder is None else _answers(folder, start)

    def parts() -> Parts:
        of_code = of_timetrial()
        known = {"git": of_code}
        if of_folder is not None:
            known = {
                "git": of_folder(),
                "timetrial": {key: of_code[key] for key in ("commit", "dirty") if key in of_code},
            }
        return {name: part for name, part in known.items() if part}

    return parts


def _of_code(start: Start) -> Callable[[], dict[str, Any]]:
    """The commit of this code. An installation ignores a repository around its folder, which is not timetrial's."""
    return installation.built_from if installation.PREFIX else _answers(installation.CODE, start)


def _answers(folder: Path, start: Start) -> Callable[[], dict[str, Any]]:
    outputs = [start(command, folder) for command in host.GIT_COMMANDS.values()]
    return lambda: host.parse_git(*(output() for output in outputs))


def from_launcher(environ: Mapping[str, str]) -> Parts | None:
    """The parts that the launcher wrote for a worker whose image may lack git; None without such a file."""
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
