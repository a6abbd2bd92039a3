"""python -m trainers.loop.worker RUN_DIR; with --fork LISTENER LIFELINE before it, once for each run of a search."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tracking.jobs.handover import SERVE
from tracking.jobs.worker_command import LAUNCHER
from trainers.loop.worker import die_with, main


def begun(words: list[str]) -> int:
    """Be a worker, or a server of workers and then each of its forks; the exit code."""
    die_with(int(os.environ.get(LAUNCHER, os.getppid())))  # a server until it has imported
    if words[0] != SERVE:
        return main(Path(words[0]))
    from trainers.loop.worker.fork_server import serve

    run_dir = serve(int(words[1]), int(words[2]), Path(words[3]))
    return 0 if run_dir is None else main(run_dir, forked_from=os.getppid())


if __name__ == "__main__":
    sys.exit(begun(sys.argv[1:]))
