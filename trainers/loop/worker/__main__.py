"""python -m trainers.loop.worker RUN_DIR."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tracking.jobs.worker_command import LAUNCHER
from trainers.loop.worker import die_with, main

if __name__ == "__main__":
    die_with(int(os.environ.get(LAUNCHER, os.getppid())))
    sys.exit(main(Path(sys.argv[1])))
