"""What this program is: its version, and where it runs."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def version() -> str:
    """The version that pyproject.toml says."""
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
