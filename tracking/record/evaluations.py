"""The best evaluation of a run: the best value of each metric, and a score that compares evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from conf.metric import HIGHER, NO_DIRECTIONS
from conf.target import Target, margin
from tracking.base import quantities

BEST = quantities.BEST  # prefix of the keys of best values; the metric's name follows


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics without NaN and infinity, which JSON lacks. A loss may overflow in fp16 in a good run."""
    return {key: value for key, value in metrics.items() if math.isfinite(value)}


def best(
    evaluations: Sequence[Mapping[str, float]], names: Sequence[str], directions: Mapping[str, str]
) -> dict[str, float]:
    """The best finite value of each metric, by key.

    A metric is left out if its direction is not known, or if it has no finite value.
    """
    best_values = {}
    for name in names:
        values = [row[name] for row in evaluations if math.isfinite(row.get(name, math.nan))]
        if values and name in directions:
            best_values[BEST + name] = (max if directions[name] == HIGHER else min)(values)
    return best_values


def score(
    metrics: Mapping[str, float], targets: Mapping[str, Target], metric: str,
    directions: Mapping[str, str] = NO_DIRECTIONS,
) -> float:  # fmt: skip
    """The score of an evaluation, higher is better: its margin over the target; of several targets, the smallest.

    Without a target it is the value of `metric`, negated if lower is better. The score is -inf if a value is missing or
    not finite, or if its direction is not known.
    """
    if targets:
        scores = [margin(metrics.get(name, math.nan), target) for name, target in targets.items()]
    else:
        value = metrics.get(metric, math.nan) if metric in directions else math.nan
        scores = [value if directions.get(metric) == HIGHER else -value]
    return min(scores) if all(map(math.isfinite, scores)) else -math.inf
