"""Which evaluation of a run was the best: of each metric its best value, and of the run how far it came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from conf.target import Target, is_at_most, margin
from tracking.base import quantities

BEST = quantities.BEST  # followed by the metric's name: the key of its best value


# Metrics whose names end so are better where they are lower.
LOWER = ("loss", "perplexity", "ppl", "error", "err", "mse", "mae", "rmse", "nll", "wer", "cer")


def higher_is_better(metric: str, targets: Mapping[str, Target] = MappingProxyType({})) -> bool:
    """Of a loss or an error less is better, of every other metric more; a target that says `<=` knows better."""
    if metric in targets:
        return not is_at_most(targets[metric])
    return not metric.lower().endswith(LOWER)


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without NaN and infinity, which JSON cannot hold: a loss may overflow in fp16 and the run still be good."""
    return {key: value for key, value in metrics.items() if math.isfinite(value)}


def best(
    evaluations: Sequence[Mapping[str, float]],
    names: Sequence[str],
    targets: Mapping[str, Target] = MappingProxyType({}),
) -> dict[str, float]:
    """The best finite value of each of these metrics, by its key; a metric without one is left out."""
    best_values = {}
    for name in names:
        values = [row[name] for row in evaluations if math.isfinite(row.get(name, math.nan))]
        if values:
            best_values[BEST + name] = (max if higher_is_better(name, targets) else min)(values)
    return best_values


def score(metrics: Mapping[str, float], targets: Mapping[str, Target], metric: str) -> float:
    """By what an evaluation is better than another: by how much it beats the target, of several the least.

    Without a target it is the value of `metric`, turned round where less is better. A value that is missing or not
    finite is the worst of all.
    """
    if targets:
        scores = [margin(metrics.get(name, math.nan), target) for name, target in targets.items()]
    else:
        scores = [metrics.get(metric, math.nan) * (1 if higher_is_better(metric) else -1)]
    return min(scores) if all(map(math.isfinite, scores)) else -math.inf
