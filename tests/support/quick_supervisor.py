"""The supervisor of quick_launch: tracking.jobs.node with a worker that needs no torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from conf.schema import RunConfig
from tests.support.commands import environment
from tracking.jobs.node import head_node
from tracking.jobs.node.__main__ import main
from tracking.jobs.worker_command import LAUNCHER, WorkerCommand


def worker_command(_: RunConfig, folder: Path) -> WorkerCommand:
    argv = [sys.executable, "-m", "tests.support.quick_worker", str(folder)]
    return WorkerCommand(argv, environment(PYTHONUNBUFFERED="1") | {LAUNCHER: str(os.getpid())})


if __name__ == "__main__":
    head_node.worker_command = worker_command  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
