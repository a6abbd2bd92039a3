"""Learning rates by step, set on the host without waiting for the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conf.schema import ConfigError


@dataclass(frozen=True)
class Schedule:
    """A learning rate with a linear warm-up and one of three decays.

    The rate falls to a tenth at each of `decay_epochs`; with `decay_power`, along a polynomial of that power to
    `end_learning_rate`; with neither, along a half cosine to zero. The warm-up takes `warmup_epochs` and starts at
    zero, or takes `warmup_steps` and starts above zero. Epochs may be fractions.

    A step's rate is the rate at its point `in_step`, 0 for its beginning. With 0.5, its middle, neither the first nor
    the last step has a rate of zero. Raises ConfigError, naming model.hparams, if there is no epoch, or if the warm-up
    or the decays are out of order or outside of the epochs.
    """

    learning_rate: float
    epochs: int
    decay_epochs: Sequence[float] | None
    warmup_epochs: float = 0.0
    warmup_steps: int = 0
    in_step: float = 0.0
    decay_power: float | None = None
    end_learning_rate: float = 0.0

    def __post_init__(self) -> None:
        require(
            "epochs", self.epochs, is_count(self.epochs) and self.epochs >= 1, "a whole number of epochs, 1 or more"
        )
        within = is_number(self.warmup_epochs) and 0 <= self.warmup_epochs < self.epochs
        require("warmup_epochs", self.warmup_epochs, within, f"from 0 to below epochs={self.epochs}")
        require("warmup_steps", self.warmup_steps, is_count(self.warmup_steps), "a whole number of steps, 0 or more")
        decays = self.decay_epochs or []
        in_order = all(map(is_number, decays)) and sorted(at := [self.warmup_epochs, *decays]) == at
        first = f"warmup_epochs={self.warmup_epochs}" if self.warmup_epochs else "0"
        require("decay_epochs", self.decay_epochs, in_order, f"ascending epochs, none before {first}")
        power, end = self.decay_power, self.end_learning_rate
        one_decay = power is None or (is_number(power) and power > 0 and self.decay_epochs is None)
        require("decay_power", power, one_decay, "a power above 0, with decay_epochs=null; or null")
        fits = end == 0 if power is None else is_number(end) and 0 <= end < self.learning_rate
        allowed = f"from 0 to below the learning rate {self.learning_rate:g}, with decay_power"
        require("end_learning_rate", end, fits, allowed)

    @property
    def ends_at_zero(self) -> bool:
        return self.decay_epochs is None and self.end_learning_rate == 0

    def at(self, epoch: float, step: int = 0) -> float:
        """Return the rate at a point of the training, in epochs; `step`, from 0, contains the point."""
        if epoch < self.warmup_epochs:
            return self.learning_rate * epoch / self.warmup_epochs
        rate = self.learning_rate * min(1.0, (step + 1) / (self.warmup_steps + 1))
        if self.decay_epochs is not None:
            return float(rate / 10 ** sum(epoch >= decay for decay in self.decay_epochs))
        done = min(1.0, (epoch - self.warmup_epochs) / (self.epochs - self.warmup_epochs))
        if self.decay_power is not None:
            end = min(rate, self.end_learning_rate)
            return float(end + (rate - end) * (1 - done) ** self.decay_power)
        return rate * (1 + math.cos(math.pi * done)) / 2

    def apply(self, trainer: Any, batch_idx: int) -> None:
        """Set the rate of the step that is about to begin."""
        num_batches = trainer.num_training_batches
        epoch = trainer.current_epoch + (batch_idx + self.in_step) / num_batches
        rate = self.at(epoch, trainer.current_epoch * num_batches + batch_idx)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate


def require(name: str, value: Any, holds: bool, allowed: str) -> None:
    """Raise ConfigError with the option, its value and what is `allowed`, unless `holds`."""
    if not holds:
        raise ConfigError(f"model.hparams.{name}={value}: must be {allowed}")


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: Any) -> bool:
    """Return whether the value is a finite int or float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_below_one(**values: Any) -> None:
    for name, value in values.items():
        require(name, value, is_number(value) and 0 <= value < 1, "from 0 to below 1")


def check_above_zero(**values: Any) -> None:
    for name, value in values.items():
        require(name, value, is_number(value) and value > 0, "a number above 0")


def checked_betas(betas: Any) -> tuple[float, float]:
    """Return the two factors of Adam's averages as floats: PyTorch takes no int. Raises ConfigError."""
    pair = isinstance(betas, Sequence) and not isinstance(betas, str) and len(betas) == 2
    valid = pair and all(is_number(beta) and 0 <= beta < 1 for beta in betas)
    require("betas", betas, valid, "two numbers from 0 to below 1, such as [0.8, 0.95]")
    return float(betas[0]), float(betas[1])
