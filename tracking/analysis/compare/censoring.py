"""Censored figures: how far a run without its target came, from its other metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tracking.analysis.results import Run
from tracking.base import quantities
from tracking.base.number_text import significant
from tracking.record import failures

EPOCH = quantities.EPOCH  # the last evaluated epoch
OF_THE_CLOCK = (quantities.TIME_TRAIN_SEC, quantities.TIME_EVAL_SEC, quantities.TIME_CHECKPOINT_SEC)
# For each metric to accuracy, the metrics that say how far a run without its target came.
UNTIL_CENSORED: Mapping[str, Sequence[str]] = {
    quantities.TIME_TO_ACCURACY_SEC: OF_THE_CLOCK,
    quantities.TIME_TO_ACCURACY_TRAIN_SEC: (quantities.TIME_TRAIN_SEC,),
    quantities.EPOCHS_TO_ACCURACY: (EPOCH,),
    quantities.EVALUATIONS_TO_ACCURACY: (quantities.EVALUATIONS_CENSORED,),
    quantities.COST_TO_ACCURACY_USD: (quantities.COST_USD,),
    quantities.ENERGY_TO_ACCURACY_JOULES: (quantities.ENERGY_JOULES,),
    quantities.ENERGY_TO_ACCURACY_KWH: (quantities.ENERGY_KWH,),
    quantities.ENERGY_TO_ACCURACY_CO2_GRAMS: (quantities.ENERGY_CO2_GRAMS,),
}
# Runs of older versions lack this metric. The sum of their timed parts stands in for it: a smaller, valid lower bound.
CENSORED = quantities.TIME_CENSORED_SEC
BOUNDS = {CENSORED, *(key for keys in UNTIL_CENSORED.values() for key in keys)}
# Figures of the whole run, which the target may have ended.
UNTIL_THE_END = {*BOUNDS, quantities.ENERGY_HOST_JOULES}


def censored_at(key: str, metrics: Mapping[str, float]) -> float | None:
    """The lower bound of a figure to accuracy (a key of UNTIL_CENSORED) for a run without its target.

    None if the run's metrics do not say.
    """
    if key == quantities.TIME_TO_ACCURACY_SEC and CENSORED in metrics:
        return metrics[CENSORED]
    parts = [metrics[name] for name in UNTIL_CENSORED[key] if name in metrics]
    return sum(parts) if UNTIL_CENSORED[key][0] in metrics else None


def interval_of(key: str, metrics: Mapping[str, float]) -> float | None:
    """The spacing of a figure's possible values, in its unit: a run reaches its target only at an evaluation.

    It is 1 for evaluations, and for epochs if each is evaluated. For any other figure to accuracy (time, cost, energy,
    epochs) it is figure * last interval / time to accuracy; older runs recorded epochs in place of intervals. The same
    holds for a figure of the whole run, if the run ended at the target. None if unknown, and for all other figures.
    """
    epochs = metrics.get(quantities.EPOCHS_TO_ACCURACY)
    ended_there = epochs is not None and metrics.get(quantities.EPOCHS_TRAINED) == epochs
    each_epoch = metrics.get(quantities.EVALUATIONS_TO_ACCURACY, epochs) == epochs
    counted = key.startswith(quantities.EPOCHS) and (each_epoch or key not in UNTIL_CENSORED)
    if counted or key.startswith(quantities.EVALUATIONS):
        return 1.0
    of_evaluations = key in UNTIL_CENSORED or (ended_there and key in UNTIL_THE_END)
    if not of_evaluations or key not in metrics:
        return None
    interval, time = metrics.get(quantities.TIME_EVALUATION_INTERVAL_SEC), metrics.get(quantities.TIME_TO_ACCURACY_SEC)
    if interval is not None and time:
        return metrics[key] * interval / time
    return metrics[key] / math.ceil(epochs) if epochs else None


def why_bound(key: str) -> str:
    """Why a mean of this metric is only a bound."""
    return "runs did not reach the target" if key in UNTIL_CENSORED else "it became NaN in a run"


def is_lost(key: str, run: Run) -> bool:
    """Whether a metric became NaN or infinite in a run; of a best value, whether the metric never was finite."""
    last = quantities.EVAL + key.removeprefix(quantities.BEST) if key.startswith(quantities.BEST) else key
    return not math.isfinite(run.metrics.get(key, run.metrics.get(last, 0.0)))


def beside_result(values: Mapping[str, float]) -> dict[str, float]:
    """The journaled metrics that a comparison needs and a result lacks: bounds, and evaluations that became NaN."""
    return {
        key: value
        for key, value in values.items()
        if key in BOUNDS or (key.startswith(quantities.EVAL) and not math.isfinite(value))
    }


def stopped_words(runs: Sequence[Run]) -> str:
    """What stopped runs from outside, and when: `1 stopped by a time limit at 120 s`; "" without runs."""
    by_kind: dict[str, list[Run]] = {}
    for run in runs:
        by_kind.setdefault(run.failure or "", []).append(run)
    return ", ".join(
        f"{len(members)} stopped by {failures.STOP_CAUSES[kind]}{_when(members)}" for kind, members in by_kind.items()
    )


def _when(runs: Sequence[Run]) -> str:
    seconds = sorted(run.metrics[CENSORED] for run in runs if CENSORED in run.metrics)
    times = list(dict.fromkeys(significant(sec, 4) for sec in seconds[:1] + seconds[-1:]))
    return f" at {' to '.join(times)} s" if times else ""
