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


def of_config(run: Options, model: Options) -> Intervals:
    """The intervals of a run; if it sets none, those of its model."""
    of_run = of_options(run)
    if replace(of_run, after_steps=None) != Intervals():
        return of_run
    of_model = of_options(model)
    return of_model if of_run.after_steps is None else replace(of_model, after_steps=of_run.after_steps)


def of_options(options: Options) -> Intervals:
    """The intervals in the options of a run alone, or of a model alone."""
    return Intervals(*_interval(options), options.eval_after_steps)


def _interval(options: Options) -> tuple[int | None, int | None, Sequence[int]]:
    return options.eval_every_steps, options.eval_every_samples, tuple(options.eval_at_epochs)


def without_defaults(*options: dict[str, Any]) -> None:
    """Remove unset options, so that the hashes of older runs stay as they are."""
    for content in options:
        for key in (*KEYS, "checkpoint_every_steps"):
            if content.get(key) in (None, []):
                content.pop(key, None)
