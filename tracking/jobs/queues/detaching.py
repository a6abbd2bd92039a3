"""A launcher that detaches from its jobs, which keep running; and the command that follows them later."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tracking.base.installation import LAUNCH
from tracking.base.safe_text import path_in_command
from tracking.jobs.follow import tracking_command
from tracking.jobs.node import Interrupted, signals
from tracking.jobs.plan import Job
from tracking.record import run_folder
from tracking.request import refusal


class Detached(Exception):
    """The launcher has left its jobs, which keep running. `code` is its exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


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
    return f"{tracking_command()} follow {path_in_command(folder)}"


def not_submitted(job: Job, reason: str) -> str:
    """The message of a launcher that cannot detach, because Slurm takes no job now."""
    parent = run_folder.parent_of(job.folder) if job.folder else None
    if parent is None:
        return f"Slurm does not take {job.name} now: {reason}. Next: give the command again once it does"
    return (
        f"Slurm does not take {job.name} now: {reason}. It and the jobs after it are not submitted. Next: once Slurm"
        f" takes them, continue with {LAUNCH} {refusal.resuming(parent)}"
    )
