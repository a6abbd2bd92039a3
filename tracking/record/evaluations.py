"""The best evaluation of a run: each metric's best value, a score to compare evaluations, and a line of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from conf.metric import HIGHER, NO_DIRECTIONS
from conf.target import Target, directions_of, margin, text
from tracking.base import quantities
from tracking.base.number_text import epoch_text, significant
from tracking.record.run_folder import Result

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


def headline(result: Result) -> str:
    """`accuracy 0.97 in 19.15 s (10 epochs), 641 images/s`; empty without measurements."""
    rate = result.metrics.get(quantities.THROUGHPUT_SAMPLES_PER_SEC)
    parts = [_target_time(result), "" if rate is None else f"{rate:,.0f} {result.unit}/s"]
    return ", ".join(part for part in parts if part)


def _target_time(result: Result) -> str:
    """The time in which the target was reached, or the best values of a run that missed it."""
    metrics, target = result.metrics, ", ".join(f"{name} {text(value)}" for name, value in result.targets.items())
    if quantities.TIME_TO_ACCURACY_SEC in metrics:
        epochs = metrics.get(quantities.EPOCHS_TO_ACCURACY)  # A user's loop or a program may not count them.
        plural = "" if epochs == 1 else "s"
        after = "" if epochs is None else f" ({epoch_text(epochs)} epoch{plural})"
        return f"{target} in {metrics[quantities.TIME_TO_ACCURACY_SEC]:.2f} s{after}"
    if quantities.TIME_RESUMED_TO_ACCURACY_TRAIN_SEC in metrics:
        return f"{target} after {metrics[quantities.TIME_RESUMED_TO_ACCURACY_TRAIN_SEC]:.2f} s of training, interrupted"
    reached = _best_or_last(result)
    if result.targets and reached:
        return f"target missed: {reached}, {target} was the target"
    return reached


def _best_or_last(result: Result) -> str:
    """`accuracy 0.97 at best`: the best value of each target metric; without targets, of the first metric.

    Without a known direction, the last value is used. A script's evaluation also has metrics of its training, which are
    used only without others.
    """
    rows = [row["metrics"] for row in result.evaluations]
    names = list(result.targets) or sorted((name for row in rows[:1] for name in row), key=_is_of_training)[:1]
    bests = best(rows, names, result.directions | directions_of(result.targets))  # Older results lack them.
    if bests:
        return f"{_as_text({quantities.metric_name(key): value for key, value in bests.items()})} at best"
    last = {name: rows[-1][name] for name in names if name in rows[-1]} if rows else {}
    return f"{_as_text(last)} at the end" if last and not result.targets else ""


def _as_text(values: dict[str, float]) -> str:
    """Metrics by name with their values: `box_map 0.23, mask_map 0.21`."""
    return ", ".join(f"{name} {significant(value, 4)}" for name, value in values.items())


def _is_of_training(name: str) -> bool:
    """Whether a metric is one of the training by its name: `train_loss`, `train/acc`."""
    return name.lower().startswith("train")
