"""By when a run had not reached its target: how far it came is said by other metrics of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tracking.analysis.results import Run
from tracking.record import failures

EPOCH = "epoch"  # the one that was evaluated last
# The metrics that only a run has that reached its target: what says of another how far it came without.
UNTIL_GIVEN_UP: Mapping[str, Sequence[str]] = {
    "time/to_accuracy_sec": ("time/train_sec", "time/eval_sec", "time/checkpoint_sec"),
    "time/to_accuracy_train_sec": ("time/train_sec",),
    "epochs/to_accuracy": (EPOCH,),
    "evaluations/to_accuracy": ("evaluations/censored",),
    "cost/to_accuracy_usd": ("cost/usd",),
    "energy/to_accuracy_joules": ("energy/joules",),
}
CENSORED = "time/censored_sec"  # runs of older versions lack it: then the sum of what was timed is less, and as true
BOUNDS = {CENSORED, *(key for keys in UNTIL_GIVEN_UP.values() for key in keys)}


def given_up_at(key: str, metrics: Mapping[str, float]) -> float | None:
    """What a figure to accuracy (a key of UNTIL_GIVEN_UP) is at least, of a run that did not get there.

    None where its metrics do not say.
    """
    if key == "time/to_accuracy_sec" and CENSORED in metrics:
        return metrics[CENSORED]
    there = [metrics[name] for name in UNTIL_GIVEN_UP[key] if name in metrics]
    return sum(there) if UNTIL_GIVEN_UP[key][0] in metrics else None


def interval_of(key: str, metrics: Mapping[str, float]) -> float | None:
    """How far apart the evaluations are on which a figure of a run that reached its target can fall, in its unit.

    Epochs and evaluations are counted one by one. Any other figure to accuracy (time, cost, energy) has the share of it
    that the last interval has of the time to accuracy; of older runs, of an epoch. None where nothing says it, and of
    figures that are not to accuracy.
    """
    if key.startswith(("epochs/", "evaluations/")):
        return 1.0
    if key not in UNTIL_GIVEN_UP or key not in metrics:
        return None
    interval, time = metrics.get("time/evaluation_interval_sec"), metrics.get("time/to_accuracy_sec")
    if interval is not None and time:
        return metrics[key] * interval / time
    epochs = metrics.get("epochs/to_accuracy")
    return metrics[key] / math.ceil(epochs) if epochs else None


def stopped_words(runs: Sequence[Run]) -> str:
    """What stopped runs from outside, and when: `1 stopped by a time limit at 120 s`; "" of no runs."""
    by_kind: dict[str, list[Run]] = {}
    for run in runs:
        by_kind.setdefault(run.failure or "", []).append(run)
    return ", ".join(
        f"{len(members)} stopped by {failures.STOPPED_BY[kind]}{_when(members)}" for kind, members in by_kind.items()
    )


def _when(runs: Sequence[Run]) -> str:
    seconds = sorted(run.metrics[CENSORED] for run in runs if CENSORED in run.metrics)
    times = list(dict.fromkeys(f"{sec:.4g}" for sec in seconds[:1] + seconds[-1:]))
    return f" at {' to '.join(times)} s" if times else ""
