"""What this program is and where it lies: its version, and what its modules and commands are therefore called.

In a clone `conf`, `tracking` and `trainers` are packages of their own. Installed, they lie in the one package
`timetrial`, which the build of the wheel puts before them in every import (hatch_build.py). What names a module in
another way, and the words that tell a user what to type, get it from here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PREFIX = __name__.removesuffix("tracking.base.installation")  # `timetrial.` where it is installed, empty in a clone
CODE = Path(__file__).resolve().parents[2]  # It holds conf, tracking and trainers; a worker reads nothing outside.
# With this folder on its path another Python finds our packages, and nothing else. A clone is one. Beside an installed
# package lie torch and all that this Python has, so that the wheel holds a folder with a package that leads to ours.
SEARCH_FOLDER = CODE / "search_path" if PREFIX else CODE
PROJECT = CODE / "pyproject.toml"
BUILT_FROM = CODE / "built_from.json"  # The build of a wheel notes the commit of its repository there.
LAUNCH = "timetrial run" if PREFIX else "launch.py"  # What a user types before overrides,
TRACKING = "timetrial" if PREFIX else "python -m tracking"  # It stands before the name of a command.


def module(name: str) -> str:
    """The name under which one of our modules can be imported, such as `trainers.loop.worker`, or `python -m` run."""
    return PREFIX + name


def built_from() -> dict[str, Any]:
    """`commit` and `dirty` of the repository that an installation was built from; {} where that was none."""
    return dict(json.loads(BUILT_FROM.read_text(encoding="utf-8"))) if BUILT_FROM.exists() else {}


def version() -> str:
    """The version that pyproject.toml says."""
    import tomllib  # Only here: the Python of a worker may be 3.10, which lacks it.

    return str(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"])


def wrong_system(platform: str = sys.platform) -> str | None:
    """Why nothing can be trained on this operating system, by its name in `sys.platform`; None on Linux."""
    if platform == "linux":
        return None
    name = {"darwin": "macOS", "win32": "Windows"}.get(platform, platform)
    return (
        f"this is {name}, and timetrial trains on Linux alone: it watches, times and ends its processes by what Linux "
        "has for that. Run it on a Linux machine, in a virtual machine or, on Windows, in WSL 2"
    )
