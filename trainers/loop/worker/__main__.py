"""python -m trainers.loop.worker RUN_DIR; with --fork LISTENER LIFELINE before it, a server that forks workers."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from tracking.jobs.handover import SERVE
from tracking.jobs.worker_command import LAUNCHER
from tracking.machine.environment import remove_scratch
from trainers.loop.worker import die_with, main


def run_worker(arguments: list[str]) -> int:
    """Run a worker, or a server of workers and, in its forks, a worker each; return the exit code."""
    die_with(int(os.environ.get(LAUNCHER, os.getppid())))  # A server revokes this once it has imported.
    if arguments[0] != SERVE:
        return main(Path(arguments[0]))
    from trainers.loop.worker.fork_server import serve

    served = serve(int(arguments[1]), int(arguments[2]), Path(arguments[3]))
    if served is None:
        os._exit(0)  # Exit at once: the launcher waits for its servers.
    run_dir, collector = served
    return main(run_dir, os.getppid(), collector)


if __name__ == "__main__":
    exit_code = run_worker(sys.argv[1:])
    remove_scratch()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # A full disk loses the log's end, not the run, whose result is written.
            stream.flush()
    os._exit(exit_code)  # A normal exit would spend a second or two on freeing PyTorch, and the run would wait.
