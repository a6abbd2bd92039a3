"""The settings of a search by two objectives, and the front: those that no other beats in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from tracking.analysis.search import DECIDE, Key, SearchTrial, front


class Point(NamedTuple):
    """A run, or one of a setting's with the means of all of them."""

    trial: SearchTrial
    first: float
    second: float


def means(runs: Sequence[Point], trials: Iterable[SearchTrial]) -> list[Point]:
    """The means of each setting, of its deciding runs where it has any: those of exploring hold a search's luck.

    A setting of which a deciding run missed the target is left out.
    """
    missed = {trial.key for trial in trials if trial.phase == DECIDE and trial.state == "missed"}
    settings: dict[Key, list[Point]] = {}
    for run in runs:
        settings.setdefault(run.trial.key, []).append(run)
    chosen = []
    for key, own in settings.items():
        counted = [run for run in own if run.trial.phase == DECIDE] or own
        if key not in missed:
            chosen.append(
                Point(counted[0].trial, fmean(run.first for run in counted), fmean(run.second for run in counted))
            )
    return chosen


def front_of(points: Sequence[Point]) -> list[Point]:
    """The settings that no other one beats in both, the best by the first objective first.

    Where any was decided, only those count: a single run that explored may have been lucky.
    """
    return front([point for point in points if point.trial.phase == DECIDE] or points, lambda point: point[1:])
