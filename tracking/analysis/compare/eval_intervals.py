"""Runs with different evaluation intervals, whose figures to accuracy do not compare.

More evaluations find more chance crossings of the target, and so earlier times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracking.analysis.results import Run
from tracking.base.number_text import counted

EVERY, AFTER, EPOCHS = PARAMS = ("eval_interval_samples", "eval_after_samples", "eval_at_epochs")
ALIKE = 1.05  # intervals in samples are rounded to whole steps, and steps differ in size


def uneven(settings: Mapping[str, Sequence[Run]]) -> list[str]:
    """A sentence on the settings' intervals, if they differ. Runs without a target are ignored."""
    kinds: list[tuple[Run, list[str]]] = []  # by interval: one run, and the setting of every run with this interval
    for name, runs in settings.items():
        for run in (run for run in runs if run.has_target):
            kind = next((names for other, names in kinds if alike(run, other)), None)
            if kind is None:
                kinds.append((run, [name]))
            else:
                kind.append(name)
    if len(kinds) < 2:
        return []
    shown = [
        f"{words(run)} in {counted(len(names), 'run')} ({', '.join(dict.fromkeys(names))})" for run, names in kinds
    ]
    return [
        f"the runs were evaluated at different intervals: {'; '.join(shown[:4])}; times to accuracy do not compare,"
        " since a shorter interval reaches the target earlier by chance"
    ]


def alike(run: Run, other: Run) -> bool:
    """Whether two runs were evaluated after the same number of samples, up to the rounding to steps."""
    if run.params.get(EPOCHS) != other.params.get(EPOCHS):
        return False
    for key in (EVERY, AFTER):
        values = [float(side.params.get(key) or 0) for side in (run, other)]
        if max(values) > ALIKE * min(values):
            return False
    return True


def even(runs: Sequence[Run]) -> bool:
    """Whether the runs were evaluated after equal numbers of samples, the same for all, from their start on."""
    ordered = sorted(runs, key=lambda run: float(run.params.get(EVERY) or 0))
    spaced = not any(run.params.get(key) for run in runs for key in (AFTER, EPOCHS))
    return spaced and alike(ordered[0], ordered[-1])


def words(run: Run) -> str:
    """When a run was evaluated, in words: `every 5,000 samples`."""
    every, after, epochs = (run.params.get(key) for key in PARAMS)
    interval = f"every {float(every):,.0f} samples" if every else f"after epochs {epochs}" if epochs else "every epoch"
    return interval + (f" from {float(after):,.0f} samples on" if after else "")
