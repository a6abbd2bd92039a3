"""Refuses evaluation intervals that are impossible, as far as this can be known without the data."""

from __future__ import annotations

from collections.abc import Sequence

from conf.evaluation import KEYS, Intervals
from conf.schema import ConfigError, RunConfig


def check_evaluation(config: RunConfig) -> None:
    """Raise ConfigError for wrong intervals. The worker refuses those longer than the training."""
    requested = config.evaluated()
    if config.is_program() and requested != Intervals():
        keys = [key for key in KEYS if getattr(config, key) or getattr(config.model, key)]
        raise ConfigError(f"{keys[0]}: has no effect on a program. Next: put it into program.command")
    numbers = {
        "eval_every_steps": requested.every_steps,
        "eval_every_samples": requested.every_samples,
        "eval_after_steps": requested.after_steps,
    }
    for key, value in numbers.items():
        if value is not None and value <= 0:
            raise ConfigError(f"{key}={value}: must be above 0")
    intervals = [f"{key}={value}" for key, value in list(numbers.items())[:2] if value is not None]
    intervals += [f"eval_at_epochs={list(requested.at_epochs)}"] if requested.at_epochs else []
    if len(intervals) > 1:
        raise ConfigError(f"{' and '.join(intervals)}: exclude each other. Next: give one of them")
    if requested.at_epochs:
        _check_epochs(requested.at_epochs, requested.after_steps, config.max_epochs)
    if requested.every_steps is not None:
        _check_windows(requested.every_steps, config.log_every_n_steps)
    _check_limit(config)


def _check_epochs(epochs: Sequence[int], after_steps: int | None, max_epochs: int | None) -> None:
    text = f"eval_at_epochs={list(epochs)}"
    if list(epochs) != sorted({*epochs}) or epochs[0] < 1:
        raise ConfigError(f"{text}: not a list of epochs. Allowed: epochs from 1 on, each once, in order: [32,43,48]")
    if after_steps is not None:
        raise ConfigError(f"eval_after_steps={after_steps}: has no effect with {text}. Next: leave one of them out")
    if max_epochs is not None and epochs[-1] > max_epochs:
        raise ConfigError(f"{text}: the training ends after epoch {max_epochs}. Next: give epochs up to {max_epochs}")


def _check_windows(every_steps: int, window: int) -> None:
    if every_steps % window:
        near = max(window, round(every_steps / window) * window)
        raise ConfigError(
            f"eval_every_steps={every_steps}: not a multiple of log_every_n_steps={window}. Next: give a multiple of"
            f" {window}, such as eval_every_steps={near}, or log_every_n_steps={every_steps}"
        )


def _check_limit(config: RunConfig) -> None:
    """Raise ConfigError if limit_train_batches makes an epoch shorter than the interval."""
    limit, requested = config.limit_train_batches, config.evaluated()
    if limit is None:
        return
    if requested.every_steps is not None and limit < requested.every_steps:
        raise ConfigError(
            f"limit_train_batches={limit}: is smaller than eval_every_steps={requested.every_steps}. Next: give"
            f" eval_every_steps={limit} at most, or more batches"
        )
    most = config.max_epochs * limit if config.max_epochs is not None else None
    if requested.after_steps is not None and most is not None and requested.after_steps > most:
        raise ConfigError(
            f"eval_after_steps={requested.after_steps}: the training has {most} steps. Next: give fewer than {most}"
        )
