"""How many epochs a fit has trained, from Lightning's progress. A fit that goes on counts its own alone, as its clock
does; Lightning counts those of all fits, and one that ended early as a whole one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytorch_lightning as pl


class Epochs:
    """Counts from the start of a fit; make it there."""

    def __init__(self, trainer: pl.Trainer) -> None:
        self.before = trainer.current_epoch  # Lightning's count at the start
        self._skipped: int | None = None  # batches of the first epoch that an earlier fit has trained
        self._missing: float | None = None  # their part of it, once its length is known
        self._batches = 0  # the batches of a whole epoch; 0 while none came to its end

    @property
    def began(self) -> bool:
        """Whether a batch has been there."""
        return self._skipped is not None

    def note_first_batch(self, trainer: pl.Trainer) -> None:
        """A checkpoint may have been written within an epoch, or behind its last batch: only now is it counted."""
        self.before = trainer.current_epoch
        self._skipped = trainer.fit_loop.epoch_loop.batch_progress.current.ready - 1

    def tags(self) -> dict[str, str]:
        """What the count means, where it is not Lightning's own."""
        within = f" and {self._skipped} batches" if self._skipped else ""
        words = f"of this fit alone; Lightning's own count was {self.before}{within} when it began"
        return {"epochs": words} if self.before or within else {}

    def number(self, trainer: pl.Trainer) -> int:
        """The epoch that is trained now: 1 is the first one of this fit."""
        return trainer.current_epoch - self.before + 1 if self.began else 1

    def planned(self, trainer: pl.Trainer) -> int | None:
        """How many epochs this fit has at most; None where that is not said."""
        return None if trainer.max_epochs in (None, -1) else trainer.max_epochs - self.before

    def trained(self, trainer: pl.Trainer) -> float | None:
        """Epochs trained so far, with the fraction of one that an evaluation within it has come to.

        A stream that does not say its length is as long as it was in the epoch before; None within its first epoch, and
        where that began before this fit: nobody knows whether it went on there or began anew.
        """
        if self._skipped is None:
            return 0
        progress, total = trainer.fit_loop.epoch_loop.batch_progress, self._length(trainer)
        if not total:
            return None
        if self._missing is None:
            self._missing = self._skipped / total if self._skipped else 0
        done = 1 if progress.is_last_batch else min(1.0, progress.current.ready / total)
        return round(trainer.current_epoch - self.before + done - self._missing, 4)

    def part(self, trainer: pl.Trainer) -> dict[str, float | None]:
        """For the end of an epoch: which part of it this fit has trained, None if that is not known. Empty if all."""
        progress, trained = trainer.fit_loop.epoch_loop.batch_progress, self.trained(trainer)
        if progress.is_last_batch:
            self._batches = progress.current.ready
        if trained is None:
            return {"part": None}
        before = self.number(trainer) - 1 - (self._missing or 0.0)
        part = round(trained - max(0.0, before), 4)
        return {} if part == 1 else {"part": part}

    def _length(self, trainer: pl.Trainer) -> float:
        """The batches of the epoch that is trained now; 0 where they are not known."""
        progress, total = trainer.fit_loop.epoch_loop.batch_progress, trainer.num_training_batches
        if self._skipped and not math.isfinite(total):
            return 0
        if progress.is_last_batch:
            return progress.current.ready
        return total if math.isfinite(total) else self._batches
