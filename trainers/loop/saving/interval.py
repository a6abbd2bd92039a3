"""How often checkpoints are saved, and the refusal of an interval that a run cannot keep."""

from __future__ import annotations

from dataclasses import dataclass

from conf.schema import ConfigError, RunConfig
from trainers.data.loading.position import Positionable
from trainers.workload import Loader


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
