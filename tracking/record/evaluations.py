"""Which evaluation of a run was the best: of each metric its best value, and of the run how far it came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from conf.metric import HIGHER, NO_DIRECTIONS
from conf.target import Target, margin
from tracking.base import quantities

BEST = quantities.BEST  # followed by the metric's name: the key of its best value


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without NaN and infinity, which JSON cannot hold: a loss may overflow in fp16 and the run still be good."""
    return {key: value for key, value in metrics.items() if math.isfinite(value)}


def best(
    evaluations: Sequence[Mapping[str, float]], names: Sequence[str], directions: Mapping[str, str]
) -> dict[str, float]:
    """The best finite value of each of these metrics, by its key.

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
    """By what an evaluation is better than another: its margin over the target, and over several the smallest.

    Without a target it is the value of `metric`, negated if lower is better. A value that is missing or not finite is
    the worst of all, and so is one whose direction is not known.
    """
    if targets:
        scores = [margin(metrics.get(name, math.nan), target) for name, target in targets.items()]
    else:
        value = metrics.get(metric, math.nan) if metric in directions else math.nan
        scores = [value if directions.get(metric) == HIGHER else -value]
    return min(scores) if all(map(math.isfinite, scores)) else -math.inf
