"""Searches with two objectives: the trials seen by each, and the settings that no other beats in both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from tracking.analysis.search.trials import Rules, SearchTrial, Second

T = TypeVar("T")


def views(rules: Rules, trials: Sequence[SearchTrial]) -> list[tuple[Rules, Sequence[SearchTrial]]]:
    """The rules and trials for each objective, as in a search by it alone. Two objectives share the error."""
    if rules.num_objectives == 1:
        return [(rules, trials)]
    each = replace(rules, num_objectives=1, alpha=rules.alpha / rules.num_objectives)
    return [(each, trials), (each, [by_second(trial) for trial in trials])]


def by_second(trial: SearchTrial) -> SearchTrial:
    """The trial by its second objective."""
    return replace(trial, **vars(trial.second or Second()), second=None)


def front(points: Iterable[T], values: Callable[[T], tuple[float, ...]]) -> list[T]:
    """The points that no other one beats in both values, ordered by the first; for a single value, the best point."""
    chosen: list[T] = []
    for point in sorted(points, key=values):
        if not chosen or values(point)[1:] < values(chosen[-1])[1:]:
            chosen.append(point)
    return chosen
