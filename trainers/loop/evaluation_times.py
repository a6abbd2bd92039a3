"""How long a training is and when it is evaluated: the plan of a run, and how Lightning's loop is made to follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl

from conf.evaluation import Intervals, of_options
from conf.schema import ConfigError, RunConfig
from tracking.measure.training import EvaluationPlan, planned
from tracking.record import Journal
from trainers.loop.batch_size import samples_are_tokens
from trainers.workload import Data, InTokens, Loader, TrialModule


@dataclass(frozen=True)
class Length:
    """`limit` cuts each epoch to so many steps, and `steps` the whole training. None cuts nothing."""

    max_epochs: int
    limit: int | None
    steps: int | None = None


def length_of(config: RunConfig, module: TrialModule, num_batches: int) -> Length:
    """What was asked for, else the length of the module's schedule, where a pass over the data has `num_batches`.

    A schedule of steps becomes the fewest epochs that have them, and only the last one is cut.
    """
    limit, steps = config.limit_train_batches, module.max_steps
    if config.max_epochs is not None or limit is not None or steps is None:
        return Length(module.max_epochs if config.max_epochs is None else config.max_epochs, limit)
    if steps <= num_batches:
        return Length(1, steps)
    return Length(-(-steps // num_batches), None, steps)


def plan_of(
    config: RunConfig, data: Data, loader: Loader, num_train: int, module: TrialModule, evaluates: bool
) -> EvaluationPlan:
    """How long a run is, and when it evaluates. Raises ConfigError for an interval that it cannot keep."""
    # A model's own interval is for its datasets that have something to evaluate on.
    asked = config.evaluated() if evaluates else of_options(config)
    if not evaluates and asked != Intervals():
        raise ConfigError(
            f"dataset={config.dataset.name}: has nothing to evaluate on, so that intervals between evaluations have no"
            " effect; leave out eval_every_steps and its like"
        )
    length = length_of(config, module, len(loader))
    num_batches = len(loader) if length.limit is None else min(length.limit, len(loader))
    # Sentences fill a batch of tokens more or less.
    of_sentences = isinstance(data, InTokens) and not samples_are_tokens(data)
    samples_per_step = num_train / len(loader) if of_sentences else config.samples_per_step()
    limited = config.limit_train_batches is not None
    return planned(asked, num_batches, length.max_epochs, samples_per_step, limited, length.steps)


def follow(trainer: pl.Trainer, plan: EvaluationPlan) -> None:
    """Have Lightning evaluate after the plan's steps; its own intervals know neither a first step nor a last one."""
    loop = trainer.fit_loop.epoch_loop
    resumed_after: list[int] = []

    def due(fetcher: Any) -> bool:
        step = loop.total_batch_idx + 1
        if (
            loop.restarting and not resumed_after
        ):  # Asked before the first step; a checkpoint lies behind an evaluation.
            resumed_after.append(step)
        return step not in resumed_after and loop._should_check_val_epoch() and plan.due(step)

    loop._should_check_val_fx = due  # type: ignore[method-assign, assignment]
    if plan.num_steps < plan.num_batches * plan.max_epochs:
        trainer.callbacks.append(LastStep(plan.num_steps))  # type: ignore[attr-defined]


class LastStep(pl.Callback):
    """Ends the training after a step within an epoch. Lightning's `max_steps` would change how a checkpoint goes on."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.fit_loop.epoch_loop.batch_progress.total.ready >= self._num_steps:
            trainer.should_stop = True


def note(log: Journal, plan: EvaluationPlan) -> None:
    """Journal the interval, which is part of what identifies a setting."""
    log.params(dict(plan.params()))
    if words := plan.words():
        log.tags({"eval_interval": words})
