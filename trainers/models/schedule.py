"""Learning rates by step, set without the device's knowing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conf.schema import ConfigError


@dataclass(frozen=True)
class StepSchedule:
    """Linear warm-up over `warmup_steps`, then a tenth of the rate after each of `decay_epochs` (fractions allowed)."""

    learning_rate: float
    epochs: int
    decay_epochs: list[float]
    warmup_steps: int

    def __post_init__(self) -> None:
        if not isinstance(self.epochs, int) or self.epochs < 1:
            raise ConfigError(f"model.hparams.epochs={self.epochs}: must be a whole number of at least 1")
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise ConfigError(f"model.hparams.warmup_steps={self.warmup_steps}: must be a whole number, 0 or more")
        if sorted(self.decay_epochs) != self.decay_epochs or any(epoch < 0 for epoch in self.decay_epochs):
            raise ConfigError(f"model.hparams.decay_epochs={self.decay_epochs}: must be epochs in ascending order")

    def at(self, step: int, epoch: float) -> float:
        """The rate of a step, counted from 0, that begins at `epoch`, a fraction."""
        decays = sum(epoch >= end for end in self.decay_epochs)
        warm = min(1.0, (step + 1) / (self.warmup_steps + 1))
        return self.learning_rate * warm / 10**decays

    def apply(self, trainer: Any, batch_idx: int) -> None:
        """Set the rate of the step that is about to begin."""
        num_batches = trainer.num_training_batches
        rate = self.at(trainer.current_epoch * num_batches + batch_idx, trainer.current_epoch + batch_idx / num_batches)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
