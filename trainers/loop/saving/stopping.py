"""Tells whether the supervisor wants the run to save a checkpoint and end: it then puts a file in the run's folder."""

from __future__ import annotations

import time
from pathlib import Path

from tracking.record import run_folder

LOOK_SEC = 0.5


class SavedAndEnded(Exception):
    """The run was told to stop, and has saved a checkpoint."""


class Stopping:
    """Looks for the file, at most once in LOOK_SEC seconds."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / run_folder.STOPPING
        self._looked_at = 0.0
        self._requested = False

    def is_requested(self) -> bool:
        if not self._requested and time.monotonic() - self._looked_at > LOOK_SEC:
            self._looked_at = time.monotonic()
            self._requested = self._file.exists()
        return self._requested
