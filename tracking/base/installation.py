"""Where timetrial is installed, its version, and the names of its modules and commands there.

In a clone, `conf`, `tracking` and `trainers` are top-level packages. The wheel has them inside the package `timetrial`;
its build prefixes their imports (hatch_build.py). Code that names a module in a string, or a command in a message,
takes the name from here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

PREFIX = __name__.removesuffix("tracking.base.installation")  # `timetrial.` if installed, empty in a clone
CODE = Path(__file__).resolve().parents[2]  # has conf, tracking and trainers; a worker imports our code from here only
# A folder for another Python's path, through which it finds our packages and nothing else. A clone is such a folder.
# An installed package lies beside torch and others, so the wheel has a folder with a package that leads to ours.
SEARCH_FOLDER = CODE / "search_path" if PREFIX else CODE
PROJECT = CODE / "pyproject.toml"
BUILT_FROM = CODE / "built_from.json"  # written by the build of the wheel: the commit of its repository
LAUNCH = "timetrial run" if PREFIX else "python launch.py"  # what a user types before overrides
TRACKING = "timetrial" if PREFIX else "python -m tracking"  # what a user types before the name of a command


def module(name: str) -> str:
    """The importable name of one of our modules, such as `trainers.loop.worker`; also for `python -m`."""
    return PREFIX + name


def built_from() -> dict[str, Any]:
    """`commit` and `dirty` of the repository that the installation was built from; {} if it was built without git."""
    return dict(json.loads(BUILT_FROM.read_text(encoding="utf-8"))) if BUILT_FROM.exists() else {}


def version() -> str:
    """The version in pyproject.toml."""
    import tomllib  # Only here: a worker may run on Python 3.10, which lacks it.

    return str(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"])


def wrong_system(platform: str = sys.platform) -> str | None:
    """Why timetrial cannot train on this operating system (a value of `sys.platform`); None on Linux."""
    if platform == "linux":
        return None
    name = {"darwin": "macOS", "win32": "Windows"}.get(platform, platform)
    return (
        f"this is {name}, and timetrial needs Linux, whose interfaces it uses to watch, time and end its processes. "
        "Next: run it on a Linux machine, in a virtual machine or, on Windows, in WSL 2"
    )


def refuse_python(error: ModuleNotFoundError, command: str) -> NoReturn:
    """Exit with code 2 and say how to run `command` in timetrial's environment: this Python lacks a package."""
    if f"{error.name}.".startswith(("conf.", "tracking.", "trainers.", "timetrial.")):
        raise error  # a fault of ours
    print(
        f"refused: this Python has no {error.name}. Next: uv run {command}, or source .venv/bin/activate",
        file=sys.stderr,
    )
    sys.exit(2)
