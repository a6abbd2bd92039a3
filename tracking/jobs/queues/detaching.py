"""A launcher that detaches from its jobs, which keep running; and the command that follows them later."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tracking.base.safe_text import path_to_type
from tracking.jobs.follow import tracking_command
from tracking.jobs.node import Interrupted, signals


class Detached(Exception):
    """The launcher has detached; its jobs keep running."""


def wants_cancel(error: Interrupted) -> bool:
    """Whether the user who pressed Ctrl-C wants the jobs cancelled; without a terminal, they keep running."""
    signals.raise_on_signals()
    if error.signum != signal.SIGINT or not sys.stdin.isatty():
        return False
    try:
        return input("\nCancel the jobs (c), or detach and let them go on (d)? [d] ").strip().lower().startswith("c")
    except (EOFError, Interrupted):
        return False


def follow_command(folder: Path) -> str:
    return f"{tracking_command()} follow {path_to_type(folder)}"
