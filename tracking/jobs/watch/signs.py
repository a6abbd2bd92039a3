"""Signs of trouble in a run's records: a diverging loss, and a rate below that of earlier runs of its setting."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.base.number_text import significant
from tracking.jobs.plan import earlier_runs
from tracking.record import Record, files, run_folder, typed_json

LOSS_FACTOR, LOSS_VALUES = 2.0, 5  # A loss diverges if its last 5 values exceed twice its first.
SLOW_FACTOR = 2.0  # A run is slow if the median rate of earlier runs is at least this many times its own.
FIRST_WINDOWS = 4  # windows before a rate is known; the first holds the kernels' warm-up


class Signs:
    """The losses and rates in the records of one run so far."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self._windows: list[tuple[float, float]] = []  # samples, and seconds on the slowest rank

    def see(self, record: Record) -> None:
        loss: Any = record.values.get(quantities.TRAIN_LOSS)
        if record.kind == "metrics" and typed_json.is_number(loss):
            self.losses.append(float(loss))
        if record.kind == "event" and record.key == "throughput_window" and record.values.get("rank_ms"):
            seconds = max(record.values["rank_ms"]) / 1e3
            if seconds > 0:
                self._windows.append((float(record.values["samples"]), seconds))

    @property
    def last_rate(self) -> float | None:
        """Samples a second in the newest window; None before the first."""
        return self._windows[-1][0] / self._windows[-1][1] if self._windows else None

    @property
    def rate(self) -> float | None:
        """Samples a second over the newer half of the windows; None while there are too few."""
        if len(self._windows) < FIRST_WINDOWS:
            return None
        newer = self._windows[len(self._windows) // 2 :]
        return sum(samples for samples, _ in newer) / sum(seconds for _, seconds in newer)

    def is_time_to_compare(self) -> bool:
        """Whether the number of windows has just doubled; later comparisons find a run that slows down."""
        number = len(self._windows)
        return number >= FIRST_WINDOWS and number & (number - 1) == 0

    def diverged(self) -> str:
        """The reason why the loss diverges; empty if it does not."""
        if not self.losses:
            return ""
        first, last = self.losses[0], self.losses[-LOSS_VALUES:]
        if not math.isfinite(last[-1]):
            return f"train/loss is {last[-1]}"
        if first > 0 and len(self.losses) > LOSS_VALUES and min(last) > LOSS_FACTOR * first:
            risen = f"its last {LOSS_VALUES} values are above twice its first, {significant(first)}"
            return f"train/loss is {significant(last[-1])}, and {risen}"
        return ""


def past_rates(folder: Path, config: RunConfig) -> list[float]:
    """Samples a second of earlier finished runs of the same setting on the same hardware and stack."""
    place = earlier_runs.place_of(folder)
    request = earlier_runs.RunRequest.of(config)  # includes options beyond the setting, such as jobs_at_once
    runs = earlier_runs.earlier_runs(_runs_dir(folder), [config.model.name])
    return [
        run.samples_per_sec for run in runs if run.samples_per_sec and run.place == place and run.request == request
    ]


def _runs_dir(folder: Path) -> Path:
    """The folder that holds a run's or its sweep's folder; `runs_dir` may be relative to another process's folder."""
    parent = folder.absolute().parent
    return parent.parent if files.exists(parent / run_folder.RUN) else parent


def slower(rate: float | None, past: Sequence[float]) -> str:
    """A sentence that compares a slow rate with the past; empty if it is not slow or has no past."""
    if not rate or not past or SLOW_FACTOR * rate > (usual := statistics.median(past)):
        return ""
    runs = f"{len(past)} earlier run{'s' * (len(past) > 1)}"
    return (
        f"{significant(rate, 4)} samples/s, where {runs} of this setting on this hardware had {significant(usual, 4)}"
    )
