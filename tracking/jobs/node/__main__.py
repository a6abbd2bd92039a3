"""Runs a node's part of a run: python -m tracking.jobs.node FOLDER, under srun, or in a share of this machine."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from tracking.jobs.node import keep_to_share, supervise
from tracking.jobs.worker_command import worker_command
from tracking.machine.environment import nvml, processes


def main(folder: Path) -> int:
    if not folder.is_dir():
        node = os.environ.get("SLURMD_NODENAME") or platform.node()
        print(
            f"node {node}: there is no {folder}; runs_dir has to lie on a file system that all nodes share", flush=True
        )
        return 1
    if trouble := keep_to_share():
        print(trouble, flush=True)
    return supervise(folder, nvml.visible_gpus(), worker_command, processes.begun())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
