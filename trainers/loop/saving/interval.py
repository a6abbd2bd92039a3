"""When checkpoints are saved: at an interval that the run can keep, and before an end that the supervisor requests.

To request an end, the supervisor puts a file in the run's folder.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.record import run_folder
from trainers.data.loading.position import Positionable
from trainers.workload import Loader

LOOK_SEC = 0.5


@dataclass(frozen=True)
class Interval:
    """Interval between checkpoints, in epochs, in steps, or both; falsy if neither is set."""

    epochs: int | None = None
    steps: int | None = None

    def __bool__(self) -> bool:
        return self != Interval()

    def check(self, max_epochs: int, num_steps: int, loader: Loader) -> None:
        """Raise ConfigError if the run ends before its first checkpoint, or the loader cannot begin within an epoch."""
        if self.epochs is not None and self.epochs >= max_epochs:
            raise ConfigError(
                f"checkpoint_every_epochs={self.epochs}: the run has only {max_epochs} epochs, and none is saved after"
                " the last one. Next: give a smaller number, or leave it out"
            )
        if self.steps is None:
            return
        if self.steps >= num_steps:
            raise ConfigError(
                f"checkpoint_every_steps={self.steps}: the run has only {num_steps:,} steps, and none is saved after"
                " the last one. Next: give a smaller number, or leave it out"
            )
        if not isinstance(loader, Positionable):
            raise ConfigError(
                f"checkpoint_every_steps={self.steps}: the training's loader ({type(loader).__name__}) cannot begin"
                " within an epoch. Next: give checkpoint_every_epochs instead, or give the loader a method"
                " begin_behind(num_batches) that skips these batches"
            )


def interval_of(config: RunConfig, max_epochs: int, num_steps: int, loader: Loader) -> Interval:
    """Return the interval that the options set. Raises ConfigError for one that the run cannot keep."""
    interval = Interval(config.checkpoint_every_epochs, config.checkpoint_every_steps)
    interval.check(max_epochs, num_steps, loader)
    return interval


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
