"""Refuses evaluation intervals that are impossible, as far as this can be known without the data."""

from __future__ import annotations

from collections.abc import Sequence

from conf.evaluation import KEYS, Intervals
from conf.schema import ConfigError, RunConfig


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
