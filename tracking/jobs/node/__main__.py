"""Supervises a node's part of a run: python -m tracking.jobs.node, for a launcher; with FOLDER, under srun."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

from tracking.base import secrets
from tracking.jobs.handover import received
from tracking.jobs.node import keep_to_share, supervise
from tracking.machine.environment import nvml
from tracking.request import stored_config


def main(folders: list[str]) -> int:
    if not folders:
        prepare()
        assigned = received()
        if assigned is None:
            return 0
        os.environ.update(assigned.environment)
        if trouble := keep_to_share():
            with suppress(OSError):  # The launcher's output may be gone.
                print(trouble, flush=True)
        return supervise(assigned.folder, assigned)
    folder = Path(folders[0])
    if not folder.is_dir():
        node = os.environ.get("SLURMD_NODENAME") or platform.node()
        print(f"node {node}: {folder} is missing. Next: give a runs_dir that all nodes share", flush=True)
        return 1
    return supervise(folder)


def prepare() -> None:
    """Import what a run's config and GPUs need, before there is a run."""
    stored_config.loaded("")
    nvml.visible_gpus()


if __name__ == "__main__":
    secrets.guard_tracebacks()
    sys.exit(main(sys.argv[1:]))
