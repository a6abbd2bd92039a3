"""The settings of a search by two objectives, and their front: settings that no other one beats in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from tracking.analysis.search import DECIDE, Key, SearchTrial, front


class Point(NamedTuple):
    """A run with its two values; or a setting's first run with the means of its runs."""

    trial: SearchTrial
    first: float
    second: float


def means(runs: Sequence[Point], trials: Iterable[SearchTrial]) -> list[Point]:
    """Each setting's means over its deciding runs; without any, over its exploring runs, which luck may favour.

    A setting is left out if one of its deciding runs missed the target: a mean of the other runs would be too good.
    """
    decided = [trial for trial in trials if trial.phase == DECIDE and not trial.refused]
    short = {trial.key for trial in decided if trial.state in ("stopped", "missed", "failed")}
    settings: dict[Key, list[Point]] = {}
    for run in runs:
        settings.setdefault(run.trial.key, []).append(run)
    chosen = []
    for key, points in settings.items():
        counted = [run for run in points if run.trial.phase == DECIDE] or points
        if key not in short:
            chosen.append(
                Point(counted[0].trial, fmean(run.first for run in counted), fmean(run.second for run in counted))
            )
    return chosen


def front_of(points: Sequence[Point]) -> list[Point]:
    """The settings that no other one beats in both, best by the first objective first.

    If any setting was decided, only decided ones count: a single exploring run may have been lucky.
    """
    return front([point for point in points if point.trial.phase == DECIDE] or points, lambda point: point[1:])
