"""How a run hears that it is to save a checkpoint and to end: from its supervisor, by a file in its folder."""

from __future__ import annotations

import time
from pathlib import Path

from tracking.record import run_folder

LOOK_SEC = 0.5


class SavedAndEnded(Exception):
    """The run was told to stop, and has saved what it had come to."""


class Stopping:
    """Whether the file is there; it is looked for once in LOOK_SEC."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / run_folder.STOPPING
        self._looked_at = 0.0
        self._there = False

    def asked(self) -> bool:
        if not self._there and time.monotonic() - self._looked_at > LOOK_SEC:
            self._looked_at = time.monotonic()
            self._there = self._file.exists()
        return self._there
