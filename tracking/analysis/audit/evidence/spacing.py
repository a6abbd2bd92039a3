"""A figure of several runs: its values and bounds, and the spacing of the evaluations that it falls on."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tracking.analysis.audit.arithmetic import Observations, step
from tracking.analysis.audit.journals import JournalFigures
from tracking.base import quantities

OF_TARGETS = {*quantities.TO_ACCURACY}
# Figures of a whole run: they grow until it ends.
OF_RUNS = (
    quantities.TIME_TRAIN_SEC, quantities.TIME_EVAL_SEC, quantities.TIME_CHECKPOINT_SEC, quantities.COST_USD,
    quantities.ENERGY_JOULES, quantities.ENERGY_HOST_JOULES, quantities.ENERGY_KWH, quantities.ENERGY_CO2_GRAMS,
)  # fmt: skip
OF_A_GAP = (
    quantities.TIME_EVALUATION_INTERVAL_SEC, quantities.TIME_TO_ACCURACY_SEC, quantities.EPOCHS_TO_ACCURACY,
)  # fmt: skip


def spacing(runs: Iterable[JournalFigures], key: str) -> float:
    """The mean spacing of the evaluations that a figure falls on, over the runs that reached the target."""
    if key not in OF_TARGETS and key not in OF_RUNS:
        return step(key)
    gaps = []
    for run in runs:
        if step(key) and (run.value(key) is None or evaluated_once(run, key)):
            gaps += [] if run.value(key) is None else [step(key)]
            continue
        value, last, whole, epochs = (run.value(name) for name in (key, *OF_A_GAP))
        if key in OF_RUNS and (epochs is None or run.value(quantities.EPOCHS_TRAINED) != epochs):
            continue  # the run trained on
        if value is not None and last is not None and whole:
            gaps.append(value / whole * last)
        elif value is not None and epochs:
            gaps.append(value / math.ceil(epochs))
    return math.fsum(gaps) / len(gaps) if gaps else 0.0


def evaluated_once(run: JournalFigures, key: str) -> bool:
    """Whether a counted figure grows by one per evaluation, as epochs do if each is evaluated once."""
    named = (quantities.EVALUATIONS_TO_ACCURACY, quantities.EPOCHS_TO_ACCURACY)
    evaluations, epochs = (run.value(name) for name in named)
    return key.startswith(quantities.EVALUATIONS) or evaluations is None or evaluations == epochs


def observed(runs: Iterable[JournalFigures], key: str) -> Observations:
    """The runs' values of a figure, in order of the seeds that pair them.

    A figure to accuracy also has bounds, from runs that stopped short of the target.
    """
    runs = sorted(runs, key=lambda run: run.paired_by)
    values = [run.value(key) for run in runs if run.counts(with_missed=True)]
    numbers = [value for value in values if value is not None]
    if key not in OF_TARGETS:
        return Observations(numbers)
    short = [run for run in runs if run.stopped_short]
    bounds = [run.at_least(key) or 0.0 for run in short if not run.diverged]
    if not numbers and not any(bounds):
        bounds = []
    stopped = [*filter(None, (run.at_least(key) for run in runs if run.stopped))]
    return Observations(numbers, bounds, stopped, sum(run.diverged for run in short))
