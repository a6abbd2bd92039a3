"""When a training is evaluated: after every epoch, or as a run or its model asks."""

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
    """When to evaluate. Without any of the first three, after every epoch."""

    every_steps: int | None = None
    every_samples: int | None = None
    at_epochs: Sequence[int] = ()
    after_steps: int | None = None


def of_config(own: Options, model: Options) -> Intervals:
    """What a run says of when to evaluate; where it says nothing of the interval, what its model does."""
    said = of_options(own)
    if replace(said, after_steps=None) != Intervals():
        return said
    of_model = of_options(model)
    return of_model if said.after_steps is None else replace(of_model, after_steps=said.after_steps)


def of_options(options: Options) -> Intervals:
    """What the options of a run alone, or of a model alone, say."""
    return Intervals(*_interval(options), options.eval_after_steps)


def _interval(options: Options) -> tuple[int | None, int | None, Sequence[int]]:
    return options.eval_every_steps, options.eval_every_samples, tuple(options.eval_at_epochs)


def without_defaults(*options: dict[str, Any]) -> None:
    """Leave out what was not asked for: a run's hash stays what it was before there were these options."""
    for content in options:
        for key in (*KEYS, "checkpoint_every_steps"):
            if content.get(key) in (None, []):
                content.pop(key, None)
