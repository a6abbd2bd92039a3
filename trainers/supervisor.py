"""Runs a node's part of a run that a scheduler has started: python -m trainers.supervisor FOLDER, under srun."""

from __future__ import annotations

import sys
from pathlib import Path

from tracking.environment import nvml, processes
from tracking.jobs import supervise
from trainers.stack import worker_command


def main(folder: Path) -> int:
    if not folder.is_dir():
        print(f"{folder}: is not on this node; runs_dir has to lie on a file system that all nodes share", flush=True)
        return 1
    return supervise(folder, nvml.visible_gpus(), worker_command, processes.begun())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
