"""Means over the deciding runs of each setting, besides the objective: rate, epochs, cost and energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from statistics import fmean

from tracking.analysis.search import DECIDE, Figure, Key, key_of
from tracking.base import quantities
from tracking.base.number_text import counted
from tracking.jobs.plan import Job, sweep_summary
from tracking.record import run_folder

KEYS = {
    "samples_per_sec": quantities.THROUGHPUT_SAMPLES_PER_SEC,
    "epochs": quantities.EPOCHS_TO_ACCURACY,
    "cost_usd": quantities.COST_TO_ACCURACY_USD,
    "energy_joules": quantities.ENERGY_TO_ACCURACY_JOULES,
}
Means = Mapping[Key, Mapping[str, float]]  # by setting, the means by the names of KEYS


def means_of(jobs: Sequence[Job]) -> Means:
    """The means over each setting's deciding runs that reached the target; without a value, a name is absent."""
    reached: dict[Key, list[Mapping[str, float]]] = {}
    for job in jobs:
        if job.finished and job.settled and job.config.search.phase == DECIDE:
            metrics = sweep_summary.run_of(job).metrics
            if metrics.get(quantities.TARGET_REACHED):
                reached.setdefault(key_of(job.config.search.setting), []).append(metrics)
    return {
        setting: {
            name: fmean(values) for name, key in KEYS.items() if (values := [run[key] for run in runs if key in run])
        }
        for setting, runs in reached.items()
    }


def left_out(jobs: Sequence[Job]) -> str:
    """A sentence on the runs that were resumed by hand; empty without one."""
    num = sum(map(_is_resumed, chain.from_iterable([*job.lost, job.folder] for job in jobs)))
    were = "was" if num == 1 else "were"
    return f"{counted(num, 'run')} {were} interrupted and resumed, and {were} not counted." if num else ""


def _is_resumed(folder: Path | None) -> bool:
    with suppress(OSError, ValueError):
        result = run_folder.read_result(folder) if folder else None
        return bool(result and result.resumes)
    return False


def times(means: Means, figure: Figure, other: Figure, name: str) -> float | None:
    """Ratio of two settings' means of `name`; None if a mean is unknown or a run of either missed the target."""
    own, beside = (means.get(key_of(each.setting), {}).get(name) for each in (figure, other))
    return own / beside if own and beside and not figure.num_short + other.num_short else None
