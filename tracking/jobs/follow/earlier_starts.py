"""Start times of earlier runs in `runs_dir`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tracking.base import quantities
from tracking.jobs.plan import earlier_runs
from tracking.record import Result, run_folder


@dataclass(frozen=True)
class EarlierStart:
    """`facts` are those of `Result.start`, and `seconds` the run's `time/*` metrics."""

    facts: dict[str, Any]
    seconds: dict[str, float]

    @property
    def is_cold(self) -> bool:
        """Whether the run compiled at least one graph that was not cached."""
        return bool(self.facts.get("num_compiled"))


def earlier_starts(runs_dir: Path) -> list[EarlierStart]:
    """Starts of the newest finished runs; unreadable folders are skipped."""
    return list(islice(_starts(runs_dir), earlier_runs.MOST_RUNS))


def _starts(runs_dir: Path) -> Iterator[EarlierStart]:
    for folder in islice(earlier_runs.newest_first(runs_dir), earlier_runs.MOST_FOLDERS):
        with suppress(OSError, ValueError):
            result = run_folder.read_result(folder)
            if result is not None and result.status == "finished" and result.start:
                yield EarlierStart(result.start, _seconds(result))


def _seconds(result: Result) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in result.metrics.items()
        if key.startswith(quantities.TIME) and isinstance(value, int | float) and math.isfinite(value)
    }
