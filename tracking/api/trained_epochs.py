"""The number of epochs that a fit has trained, from Lightning's progress.

A continued fit counts only its own epochs, like its clock. Lightning counts those of all fits, and counts an epoch that
ended early as a whole one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytorch_lightning as pl


class Epochs:
    """Counts the epochs of a fit. Create it at the start of the fit."""

    def __init__(self, trainer: pl.Trainer) -> None:
        self.epochs_before = trainer.current_epoch  # Lightning's count at the start
        self._skipped_batches: int | None = None  # batches of the first epoch that an earlier fit has trained
        self._skipped_fraction: float | None = None  # their fraction of the epoch, once its length is known
        self._batches_per_epoch = 0  # batches of a whole epoch; 0 before the end of the first one

    @property
    def began(self) -> bool:
        """Whether a batch was trained."""
        return self._skipped_batches is not None

    def note_first_batch(self, trainer: pl.Trainer) -> None:
        """Note the progress at the first batch: a checkpoint may be from within an epoch, or after its last batch."""
        self.epochs_before = trainer.current_epoch
        self._skipped_batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready - 1

    def tags(self) -> dict[str, str]:
        """A tag that explains the count if it differs from Lightning's; empty otherwise."""
        skipped = f" and {self._skipped_batches} batches" if self._skipped_batches else ""
        explanation = f"of this fit alone; Lightning's own count was {self.epochs_before}{skipped} when it began"
        return {"epochs": explanation} if self.epochs_before or skipped else {}

    def number(self, trainer: pl.Trainer) -> int:
        """The number of the current epoch; 1 is the first of this fit."""
        return trainer.current_epoch - self.epochs_before + 1 if self.began else 1

    def planned(self, trainer: pl.Trainer) -> int | None:
        """The maximum number of epochs of this fit; None without a limit."""
        return None if trainer.max_epochs in (None, -1) else trainer.max_epochs - self.epochs_before

    def trained(self, trainer: pl.Trainer) -> float | None:
        """Epochs trained so far, with the fraction of the current one; None if it is not known.

        A stream of unknown length counts as long as in the epoch before. Its fraction is not known in the first epoch.
        It is never known if an earlier fit began the first epoch: the stream may have continued or begun anew.
        """
        if self._skipped_batches is None:
            return 0
        progress, total = trainer.fit_loop.epoch_loop.batch_progress, self._epoch_length(trainer)
        if not total:
            return None
        if self._skipped_fraction is None:
            self._skipped_fraction = self._skipped_batches / total if self._skipped_batches else 0
        current_fraction = 1 if progress.is_last_batch else min(1.0, progress.current.ready / total)
        return round(trainer.current_epoch - self.epochs_before + current_fraction - self._skipped_fraction, 4)

    def trained_fraction(self, trainer: pl.Trainer) -> dict[str, float | None]:
        """At an epoch's end: `part`, the fraction that this fit trained, or None if not known; {} for a whole epoch."""
        progress, trained = trainer.fit_loop.epoch_loop.batch_progress, self.trained(trainer)
        if progress.is_last_batch:
            self._batches_per_epoch = progress.current.ready
        if trained is None:
            return {"part": None}
        epochs_before = self.number(trainer) - 1 - (self._skipped_fraction or 0.0)
        trained_fraction = round(trained - max(0.0, epochs_before), 4)
        return {} if trained_fraction == 1 else {"part": trained_fraction}

    def _epoch_length(self, trainer: pl.Trainer) -> float:
        """The number of batches of the current epoch; 0 if it is not known."""
        progress, total = trainer.fit_loop.epoch_loop.batch_progress, trainer.num_training_batches
        if self._skipped_batches and not math.isfinite(total):
            return 0
        if progress.is_last_batch:
            return progress.current.ready
        return total if math.isfinite(total) else self._batches_per_epoch
