"""Refuses impossible evaluation intervals, targets out of a metric's range, and missing or contradicting directions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from conf.evaluation import KEYS, Intervals
from conf.metric import LOWER, parse
from conf.schema import ConfigError, RunConfig
from conf.target import directions_of, limit, text
from tracking.request.program_command import check_program_target


def check_evaluation(config: RunConfig) -> None:
    """Raise ConfigError for wrong intervals. The worker refuses those longer than the training."""
    intervals = config.evaluated()
    if config.is_program() and intervals != Intervals():
        keys = [key for key in KEYS if getattr(config, key) or getattr(config.model, key)]
        raise ConfigError(f"{keys[0]}: has no effect on a program. Next: put it into program.command")
    numbers = {
        "eval_every_steps": intervals.every_steps,
        "eval_every_samples": intervals.every_samples,
        "eval_after_steps": intervals.after_steps,
    }
    for key, value in numbers.items():
        if value is not None and value <= 0:
            raise ConfigError(f"{key}={value}: must be above 0")
    options = [f"{key}={value}" for key, value in list(numbers.items())[:2] if value is not None]
    options += [f"eval_at_epochs={list(intervals.at_epochs)}"] if intervals.at_epochs else []
    if len(options) > 1:
        raise ConfigError(f"{' and '.join(options)}: exclude each other. Next: give one of them")
    if intervals.at_epochs:
        _check_epochs(intervals.at_epochs, intervals.after_steps, config.max_epochs)
    if intervals.every_steps is not None:
        _check_windows(intervals.every_steps, config.log_every_n_steps)
    _check_limit(config)


def _check_epochs(epochs: Sequence[int], after_steps: int | None, max_epochs: int | None) -> None:
    option = f"eval_at_epochs={list(epochs)}"
    if list(epochs) != sorted({*epochs}) or epochs[0] < 1:
        raise ConfigError(f"{option}: not a list of epochs. Allowed: epochs from 1 on, each once, in order: [32,43,48]")
    if after_steps is not None:
        raise ConfigError(f"eval_after_steps={after_steps}: has no effect with {option}. Next: leave one of them out")
    if max_epochs is not None and epochs[-1] > max_epochs:
        raise ConfigError(f"{option}: the training ends after epoch {max_epochs}. Next: give epochs up to {max_epochs}")


def _check_windows(every_steps: int, window: int) -> None:
    if every_steps % window:
        suggestion = max(window, round(every_steps / window) * window)
        raise ConfigError(
            f"eval_every_steps={every_steps}: not a multiple of log_every_n_steps={window}. Next: give a multiple of"
            f" {window}, such as eval_every_steps={suggestion}, or log_every_n_steps={every_steps}"
        )


def _check_limit(config: RunConfig) -> None:
    """Raise ConfigError if limit_train_batches makes an epoch shorter than the interval."""
    limit, intervals = config.limit_train_batches, config.evaluated()
    if limit is None:
        return
    if intervals.every_steps is not None and limit < intervals.every_steps:
        raise ConfigError(
            f"limit_train_batches={limit}: is smaller than eval_every_steps={intervals.every_steps}. Next: give"
            f" eval_every_steps={limit} at most, or more batches"
        )
    max_steps = config.max_epochs * limit if config.max_epochs is not None else None
    if intervals.after_steps is not None and max_steps is not None and intervals.after_steps > max_steps:
        raise ConfigError(
            f"eval_after_steps={intervals.after_steps}: the training has {max_steps} steps. Next: give fewer than"
            f" {max_steps}"
        )


def check_directions(config: RunConfig) -> None:
    """Raise ConfigError for a malformed declaration, and for a target that contradicts a declaration."""
    targets = config.targets()
    try:
        declared = config.declared()
    except ValueError as error:
        raise ConfigError(f"model.metrics.{error}") from None
    for name, direction in directions_of(targets).items():
        if declared.get(name, direction) != direction:
            suggestion = "a number" if direction == LOWER else "<=NUMBER"
            raise ConfigError(
                f"target={text(targets[name])}: implies that {direction} is better for {name}, but {declared[name]} is"
                f" declared. Next: give {suggestion}, or declare {direction}"
            )


def check_target(config: RunConfig) -> None:
    """Raise ConfigError for a target on an unknown metric, out of its range, or on a dataset without accuracy."""
    declared = config.model.targets[config.dataset.name]
    if config.target is not None and len(declared) > 1:
        keys = ", ".join(f"model.targets.{config.dataset.name}.{metric}" for metric in declared)
        raise ConfigError(f"target={config.target}: this workload has several targets. Next: set {keys}")
    if config.target is not None and not declared and not config.is_program():
        raise ConfigError(
            f"target={config.target}: dataset={config.dataset.name} has no accuracy to reach. Next: leave it out, or"
            " give another dataset"
        )
    if config.is_program():
        check_program_target(config)
        return
    for metric, value in config.targets().items():
        if metric not in config.model.metrics:
            raise ConfigError(
                f"model.targets.{config.dataset.name}.{metric}={text(value)}: no such metric. Allowed:"
                f" {', '.join(config.model.metrics)} (model.metrics)"
            )
        lowest, highest = parse(config.model.metrics[metric]).bounds or (-math.inf, math.inf)
        if not lowest <= limit(value) <= highest:
            raise ConfigError(f"target={value}: out of range. Allowed for {metric}: {lowest:g} to {highest:g}")
    if not config.targets() and not config.stop_at_target:
        raise ConfigError("stop_at_target=false: has no effect, since this dataset has no target. Next: leave it out")


def check_best(config: RunConfig) -> None:
    """Raise ConfigError for save_model=best if neither a target nor a declaration says which evaluation is better."""
    first_metric = next(iter(config.model.metrics), "")
    if config.save_model == "best" and not config.targets() and first_metric not in config.directions():
        declaration = f"metrics: {{{first_metric or 'METRIC'}: lower}} or {{{first_metric or 'METRIC'}: higher}}"
        raise ConfigError(
            f"save_model=best: dataset={config.dataset.name} has no target, and no direction is declared"
            f" for {first_metric or 'its metric'}. Next: declare one in the model's YAML"
            f" ({declaration}), or give save_model=final"
        )
