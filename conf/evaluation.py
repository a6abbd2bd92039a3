"""When a training is evaluated: after every epoch, or at the intervals of the run or its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

KEYS = ("eval_every_steps", "eval_every_samples", "eval_at_epochs", "eval_after_steps")


class Options(Protocol):
    """The options of a run, or of a model."""

    eval_every_steps: int | None
    eval_every_samples: int | None
    eval_at_epochs: list[int]
    eval_after_steps: int | None


@dataclass(frozen=True)
class Intervals:
    """When to evaluate. If the first three are unset: after every epoch."""

    every_steps: int | None = None
    every_samples: int | None = None
    at_epochs: Sequence[int] = ()
    after_steps: int | None = None


def intervals_of_run(run: Options, model: Options) -> Intervals:
    """The intervals of a run; if it sets none, those of its model."""
    run_intervals = intervals_of(run)
    if replace(run_intervals, after_steps=None) != Intervals():
        return run_intervals
    after_steps, model_intervals = run_intervals.after_steps, intervals_of(model)
    return model_intervals if after_steps is None else replace(model_intervals, after_steps=after_steps)


def intervals_of(options: Options) -> Intervals:
    """The intervals in the options of a run alone, or of a model alone."""
    return Intervals(*_interval(options), options.eval_after_steps)


def _interval(options: Options) -> tuple[int | None, int | None, Sequence[int]]:
    return options.eval_every_steps, options.eval_every_samples, tuple(options.eval_at_epochs)


def remove_unset(*options: dict[str, Any]) -> None:
    """Remove unset options, so that the hashes of older runs stay as they are."""
    for option_values in options:
        for key in (*KEYS, "checkpoint_every_steps"):
            if option_values.get(key) in (None, []):
                option_values.pop(key, None)
