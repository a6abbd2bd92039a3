"""By when a run was given up that did not reach its target: how far it came is said by other metrics of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def given_up_at(key: str, metrics: Mapping[str, float]) -> float | None:
    """What a figure to accuracy (a key of UNTIL_GIVEN_UP) is at least, of a run that did not get there.

    None where its metrics do not say.
    """
    if key == "time/to_accuracy_sec" and CENSORED in metrics:
        return metrics[CENSORED]
    there = [metrics[name] for name in UNTIL_GIVEN_UP[key] if name in metrics]
    return sum(there) if UNTIL_GIVEN_UP[key][0] in metrics else None
