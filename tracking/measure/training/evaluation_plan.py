"""After which steps a training is evaluated. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conf.evaluation import Intervals
from conf.schema import ConfigError


@dataclass(frozen=True)
class EvaluationPlan:
    """Steps are counted from 1 over all epochs, each of `num_batches`. With `steps` the last epoch ends after that one.

    `samples_per_step` is how many samples a step has on average, over all processes: of text it is a fraction.
    """

    num_batches: int
    max_epochs: int
    samples_per_step: float
    every_steps: int | None = None
    at_epochs: Sequence[int] = ()
    after_steps: int = 0
    asked_samples: int | None = None
    steps: int | None = None

    @property
    def num_steps(self) -> int:
        whole = self.num_batches * self.max_epochs
        return whole if self.steps is None else min(self.steps, whole)

    def due(self, step: int) -> bool:
        """Whether an evaluation comes after this step. Where steps are the interval, one comes after the last step."""
        if step < self.after_steps:
            return False
        if self.every_steps is not None:
            return step % self.every_steps == 0 or step == self.num_steps
        epoch = -(-step // self.num_batches)
        ends = step % self.num_batches == 0 or step == self.num_steps
        return ends and (not self.at_epochs or epoch in self.at_epochs)

    def epochs(self, step: int) -> int | float:
        """How many epochs so many steps are: a whole number at the end of one."""
        whole, within = divmod(step, self.num_batches)
        return round(whole + within / self.num_batches, 6) if within else whole

    def params(self) -> Mapping[str, str | int]:
        """What identifies the interval among settings; nothing where every epoch is evaluated."""
        values: dict[str, str | int] = {}
        if self.every_steps is not None:
            values["eval_interval_samples"] = round(self.every_steps * self.samples_per_step)
        if self.at_epochs:
            values["eval_at_epochs"] = ",".join(map(str, self.at_epochs))
        if self.after_steps:
            values["eval_after_samples"] = round(self.after_steps * self.samples_per_step)
        return values

    def words(self) -> str:
        """What an interval in samples was rounded to; "" of any other."""
        if self.asked_samples is None or self.every_steps is None:
            return ""
        samples = round(self.every_steps * self.samples_per_step)
        return f"every {self.every_steps:,} steps, which is {samples:,} samples (asked: {self.asked_samples:,})"


def planned(
    asked: Intervals, num_batches: int, max_epochs: int, samples_per_step: float, limited: bool,
    steps: int | None = None,
) -> EvaluationPlan:  # fmt: skip
    """The plan of a training of so many epochs. `limited`: its epochs are cut by limit_train_batches. `steps`: it ends
    after so many.

    Raises ConfigError for what is longer than the training.
    """
    every = asked.every_steps
    if asked.every_samples is not None:
        every = max(1, round(asked.every_samples / samples_per_step))
    after = asked.after_steps or 0
    plan = EvaluationPlan(
        num_batches, max_epochs, samples_per_step, every, asked.at_epochs, after, asked.every_samples, steps
    )  # fmt: skip
    key = f"eval_every_steps={every}"
    if asked.every_samples is not None:
        key = f"eval_every_samples={asked.every_samples} ({every:,} steps of {samples_per_step:,.6g} samples)"
    cut = ", but for the last one" if plan.num_steps < num_batches * max_epochs else ""
    long = f"the training has {plan.num_steps:,} steps ({max_epochs} epochs of {num_batches:,}{cut})"
    if every is not None and every > plan.num_steps:
        raise ConfigError(f"{key}: is longer than the training; {long}: give less")
    if every is not None and limited and every > num_batches:
        raise ConfigError(f"limit_train_batches={num_batches}: is smaller than {key}; give a shorter interval")
    if after >= plan.num_steps:
        raise ConfigError(f"eval_after_steps={after}: leaves no evaluation but the last; {long}: give less")
    if asked.at_epochs and asked.at_epochs[-1] > max_epochs:
        raise ConfigError(f"eval_at_epochs={list(asked.at_epochs)}: {long}: give epochs up to {max_epochs}")
    return plan
