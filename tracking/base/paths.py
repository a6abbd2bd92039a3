"""Paths that a user gives: those from a home on, and from the current folder on."""

from __future__ import annotations

import os
from pathlib import Path


def with_home(path: str | Path) -> Path:
    """The path with the home in place of a leading `~`; unchanged if that user, or the user's home, is not known.

    pathlib's function raises RuntimeError then. An unchanged path is refused as any other that does not exist.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111


def missing_folder() -> str | None:
    """The message that the current folder was removed; None if it exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the current folder was removed, so paths have no meaning. Next: cd to one that exists"
    return None
