"""python -m tracking follow: attach to runs that were submitted to a cluster, from any host that sees their folders.

JSON: `folder`, and `exit_code` as launch.py has it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tracking.cli.command_type import Answer, Command, Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a sweep's folder, or that of a run")
    parser.add_argument("--trust", action="store_true", help="follow what somebody else made, and run what it names")


def run(arguments: argparse.Namespace) -> Answer:
    """Show the jobs as launch.py does, submit those that still wait for room, and mirror them to MLflow."""
    import time

    from tracking.jobs.node import signals
    from tracking.jobs.queues import follow
    from tracking.record import files, run_folder

    folder = arguments.folder.resolve()
    if not files.exists(folder / run_folder.RUN):
        raise Refused(f"{arguments.folder}: no folder of a run or a sweep; give one of runs_dir")
    try:
        code = follow(folder, time.monotonic(), arguments.trust)
    except signals.Interrupted:
        code = 1
    return Answer(code, {"folder": str(folder), "exit_code": code})


FOLLOW = Command("follow", "show and mirror what was submitted to a cluster, until it has ended", add_arguments, run)
