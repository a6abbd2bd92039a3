"""The steps after which a training is evaluated. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conf.evaluation import Intervals
from conf.schema import ConfigError
from tracking.base.number_text import significant


@dataclass(frozen=True)
class EvaluationPlan:
    """When a training is evaluated. Steps are counted from 1 over all epochs of `num_batches` steps.

    `steps` ends the training after that step. `samples_per_step` is the average number of samples of a step over all
    processes, a fraction for text.
    """

    num_batches: int
    max_epochs: int
    samples_per_step: float
    every_steps: int | None = None
    at_epochs: Sequence[int] = ()
    after_steps: int = 0
    requested_samples: int | None = None
    steps: int | None = None

    @property
    def num_steps(self) -> int:
        whole = self.num_batches * self.max_epochs
        return whole if self.steps is None else min(self.steps, whole)

    def evaluates_after(self, step: int) -> bool:
        """Whether an evaluation comes after this step. With an interval in steps, one also comes after the last."""
        if step < self.after_steps:
            return False
        if self.every_steps is not None:
            return step % self.every_steps == 0 or step == self.num_steps
        epoch = -(-step // self.num_batches)
        ends_epoch = step % self.num_batches == 0 or step == self.num_steps
        return ends_epoch and (not self.at_epochs or epoch in self.at_epochs)

    def epochs(self, step: int) -> int | float:
        """The epochs that `step` steps make up: an int at the end of an epoch, else a fraction."""
        whole, remainder = divmod(step, self.num_batches)
        return round(whole + remainder / self.num_batches, 6) if remainder else whole

    def params(self) -> Mapping[str, str | int]:
        """The params that identify the interval; empty if every epoch is evaluated."""
        values: dict[str, str | int] = {}
        if self.every_steps is not None:
            values["eval_interval_samples"] = round(self.every_steps * self.samples_per_step)
        if self.at_epochs:
            values["eval_at_epochs"] = ",".join(map(str, self.at_epochs))
        if self.after_steps:
            values["eval_after_samples"] = round(self.after_steps * self.samples_per_step)
        return values

    def rounding_note(self) -> str:
        """The rounding of an interval given in samples, in words; "" for any other interval."""
        if self.requested_samples is None or self.every_steps is None:
            return ""
        samples = round(self.every_steps * self.samples_per_step)
        return f"every {self.every_steps:,} steps, which is {samples:,} samples (requested: {self.requested_samples:,})"


def plan_evaluations(
    intervals: Intervals, num_batches: int, max_epochs: int, samples_per_step: float, limited: bool,
    steps: int | None = None,
) -> EvaluationPlan:  # fmt: skip
    """The evaluation plan of a training.

    `limited`: limit_train_batches cuts its epochs. `steps`: the training ends after this many. Raises ConfigError for
    an interval or a start that is longer than the training.
    """
    every = intervals.every_steps
    if intervals.every_samples is not None:
        every = max(1, round(intervals.every_samples / samples_per_step))
    after = intervals.after_steps or 0
    plan = EvaluationPlan(
        num_batches, max_epochs, samples_per_step, every, intervals.at_epochs, after, intervals.every_samples, steps
    )  # fmt: skip
    key = f"eval_every_steps={every}"
    if intervals.every_samples is not None:
        of_samples = f"{every:,} steps of {significant(samples_per_step, 6)} samples"
        key = f"eval_every_samples={intervals.every_samples} ({of_samples})"
    cut = ", the last one cut" if plan.num_steps < num_batches * max_epochs else ""
    length = f"the training has {plan.num_steps:,} steps ({max_epochs} epochs of {num_batches:,}{cut})"
    if every is not None and every > plan.num_steps:
        raise ConfigError(f"{key}: is longer than the training: {length}. Next: give a smaller value")
    if every is not None and limited and every > num_batches:
        raise ConfigError(f"limit_train_batches={num_batches}: is smaller than {key}. Next: give a shorter interval")
    if after >= plan.num_steps:
        raise ConfigError(
            f"eval_after_steps={after}: leaves only the last evaluation: {length}. Next: give a smaller value"
        )
    if intervals.at_epochs and intervals.at_epochs[-1] > max_epochs:
        raise ConfigError(f"eval_at_epochs={list(intervals.at_epochs)}: {length}. Next: give epochs up to {max_epochs}")
    return plan
