"""python -m trainers.loop.worker RUN_DIR; with --fork LISTENER LIFELINE before it, once for each run of a search."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tracking.jobs.handover import SERVE
from tracking.jobs.worker_command import LAUNCHER
from trainers.loop.worker import die_with, main


def asked(words: list[str]) -> Path | None:
    """The run's folder; None where there is no run to come."""
    if words[0] == SERVE:
        from trainers.loop.worker.fork_server import serve

        return serve(int(words[1]), int(words[2]), Path(words[3]))
    die_with(int(os.environ.get(LAUNCHER, os.getppid())))
    return Path(words[0])


if __name__ == "__main__":
    run_dir = asked(sys.argv[1:])
    sys.exit(0 if run_dir is None else main(run_dir))
