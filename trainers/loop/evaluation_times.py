"""Plans how long a run trains and when it evaluates, and makes Lightning's loop follow the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl

from conf.evaluation import Intervals, intervals_of
from conf.schema import ConfigError, RunConfig
from tracking.measure.training import EvaluationPlan, plan_evaluations
from tracking.record import Journal
from trainers.loop.batch_size import samples_are_tokens
from trainers.workload import Data, InTokens, Loader, TrialModule


@dataclass(frozen=True)
class Length:
    """Length of a training. `limit` is the most steps in an epoch, `steps` the most in all; None sets no limit."""

    max_epochs: int
    limit: int | None
    steps: int | None = None


def length_of(config: RunConfig, module: TrialModule, num_batches: int) -> Length:
    """Return the length from the options, else from the module's schedule; an epoch has `num_batches`.

    A schedule in steps becomes the fewest epochs that contain them; only the last epoch is cut short. Raises
    ConfigError for `max_epochs` beyond a schedule that ends at a rate of zero.
    """
    limit, steps, asked = config.limit_train_batches, module.max_steps, config.max_epochs
    if asked is not None and not module.ends_at_zero:
        return Length(asked, limit)
    most = module.max_epochs if steps is None else -(-steps // min(limit or num_batches, num_batches))
    if asked is not None and asked > most:
        raise ConfigError(
            f"max_epochs={asked}: is beyond the schedule of the learning rate, which is 0 from there on. Allowed: up to"
            f" {most}. Next: leave it out, or lengthen the schedule by model.hparams.{'steps' if steps else 'epochs'}"
        )
    if steps is None:
        return Length(asked or most, limit)
    epochs = asked or (most if limit is None else module.max_epochs)
    if epochs < most or (limit is not None and not module.ends_at_zero):
        return Length(epochs, limit)
    return Length(1, steps) if most == 1 else Length(most, limit, steps)


def plan_of(
    config: RunConfig, data: Data, loader: Loader, num_train: int, module: TrialModule, evaluates: bool
) -> EvaluationPlan:
    """Return when a run ends and when it evaluates. Raises ConfigError for an interval that it cannot keep."""
    # Without data to evaluate on, the model's default interval does not apply, and one set by the user is refused.
    intervals = config.evaluated() if evaluates else intervals_of(config)
    if not evaluates and intervals != Intervals():
        raise ConfigError(
            f"dataset={config.dataset.name}: has nothing to evaluate on, so intervals between evaluations have no"
            " effect. Next: leave out eval_every_steps and the other eval_ options"
        )
    length = length_of(config, module, len(loader))
    num_batches = len(loader) if length.limit is None else min(length.limit, len(loader))
    # The number of sentences in a batch of tokens varies, so take the mean.
    in_sentences = isinstance(data, InTokens) and not samples_are_tokens(data)
    samples_per_step = num_train / len(loader) if in_sentences else config.samples_per_step()
    limited = config.limit_train_batches is not None
    return plan_evaluations(intervals, num_batches, length.max_epochs, samples_per_step, limited, length.steps)


def follow(trainer: pl.Trainer, plan: EvaluationPlan) -> None:
    """Make Lightning evaluate after the plan's steps; its own intervals know no first and no last step."""
    loop = trainer.fit_loop.epoch_loop
    resumed_after: list[int] = []

    def should_evaluate(fetcher: Any) -> bool:
        step = loop.total_batch_idx + 1
        # Lightning asks before the first step of a resumed run, too. That evaluation came before the checkpoint.
        if loop.restarting and not resumed_after:
            resumed_after.append(step)
        return step not in resumed_after and loop._should_check_val_epoch() and plan.evaluates_after(step)

    loop._should_check_val_fx = should_evaluate  # type: ignore[method-assign, assignment]
    if plan.num_steps < plan.num_batches * plan.max_epochs:
        trainer.callbacks.append(LastStep(plan.num_steps))  # type: ignore[attr-defined]


class LastStep(pl.Callback):
    """End the training after a step within an epoch. Lightning's `max_steps` would change how a checkpoint resumes."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.fit_loop.epoch_loop.batch_progress.total.ready >= self._num_steps:
            trainer.should_stop = True


def note(log: Journal, plan: EvaluationPlan) -> None:
    """Journal the interval between evaluations, which is part of a setting's identity."""
    log.params(dict(plan.params()))
    if words := plan.rounding_note():
        log.tags({"eval_interval": words})
