"""When a training is evaluated: the plan of a run, and how Lightning's loop is made to follow it."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from conf.evaluation import Intervals
from conf.schema import ConfigError, RunConfig
from tracking.measure.training import EvaluationPlan, planned
from tracking.record import Journal
from trainers.workload import Data, InTokens, Loader


def plan_of(
    config: RunConfig, data: Data, loader: Loader, num_train: int, schedule: int, evaluates: bool
) -> EvaluationPlan:
    """When a run evaluates, whose model's schedule has so many epochs. Raises ConfigError for an interval that it
    cannot keep."""
    asked, limit = config.evaluated(), config.limit_train_batches
    max_epochs = schedule if config.max_epochs is None else config.max_epochs
    if not evaluates and asked != Intervals():
        raise ConfigError(
            f"dataset={config.dataset.name}: has nothing to evaluate on, so that intervals between evaluations have no"
            " effect; leave out eval_every_steps and its like"
        )
    num_batches = len(loader) if limit is None else min(limit, len(loader))
    samples_per_step = num_train / len(loader) if isinstance(data, InTokens) else config.samples_per_step()
    return planned(asked, num_batches, max_epochs, samples_per_step, limited=limit is not None)


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


def note(log: Journal, plan: EvaluationPlan) -> None:
    """Journal the interval, which is part of what identifies a setting."""
    log.params(dict(plan.params()))
    if words := plan.words():
        log.tags({"eval_interval": words})
