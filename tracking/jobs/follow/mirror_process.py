"""Mirrors a run from its head node: python -m tracking.jobs.follow.mirror_process FOLDER, beside the supervisor."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tracking.jobs.follow.mirror_thread import mirror_of
from tracking.jobs.handover import LAUNCHER, Lifeline
from tracking.jobs.node import ticket
from tracking.record import run_folder

POLL_SEC = 0.5


def main(folder: Path) -> int:
    """Mirror until the run or its supervisor has ended, then send the rest. Returns 0 if MLflow has everything."""
    config, line = run_folder.read_config(folder), Lifeline((LAUNCHER,))
    mirror = mirror_of(folder, config)
    assert mirror is not None
    while not ticket.has_ended(folder) and line.cut(POLL_SEC) is None:
        pass
    return 0 if mirror.close(config.tracking.upload_wait_sec) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # The signal is for the supervisor.
    sys.exit(main(Path(sys.argv[1])))
