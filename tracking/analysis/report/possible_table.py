"""How close the runs came to what is possible: each limit's ceiling, and a run's time without the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

from tracking.analysis.compare import Setting, Task
from tracking.analysis.results import Run, Runs, Table
from tracking.analysis.statistics import counted
from tracking.base import quantities
from tracking.base.number_text import significant
from tracking.measure import bottleneck
from tracking.measure.bottleneck import NAMES, possible
from tracking.record import run_folder

KIND = "possible"
COLUMNS = ("limit", "share of the time (%)", "now (s)", "without it at least (s)", "ceiling", "reached (%)")
NOTE = (
    "Means over the runs with this limit. Without one limit, another takes its place. So these times are lower bounds. "
    "Ceilings were measured on the same hardware (docs/bottleneck.md)."
)


def possible_table(task: Task, axes: Sequence[str], store: Runs) -> Table | None:
    """A row for each setting and limit, the largest limit first; None if no run recorded its limits."""
    rows = [[*setting.labels.values(), *row] for setting in task.settings for row in _rows(setting, store)]
    headings = dict.fromkeys([*axes, *COLUMNS], "")
    runs = [run for setting in task.settings for run in setting.trained]
    shared = sum(bottleneck.shared_cores(run.tags.get("neighbours", "")) for run in runs)
    note = NOTE + (
        f" {shared} of {counted(len(runs), 'run')} shared its cores: run it again alone first." if shared else ""
    )
    return Table(f"{task.title}: what is possible", headings, rows, note, KIND, task.title) if rows else None


def _rows(setting: Setting, store: Runs) -> Iterator[list[str]]:
    by_cause: dict[str, list[Mapping[str, Any]]] = {}
    for run in setting.trained:
        limits = _limits(run, store)
        for row in limits.get("possible", ()):
            by_cause.setdefault(row["cause"], []).append(row | {"total_sec": limits["total_sec"]})
    for cause, rows in sorted(by_cause.items(), key=lambda item: (-fmean(row["share"] for row in item[1]), item[0])):
        known = [row for row in rows if "reached" in row]
        ceiling = possible.amount(known[0]["ceiling"], known[0]["unit"]) if known else ""
        reached = f"{100 * fmean(row['reached'] for row in known):.0f}" if known else ""
        share, total, least = (fmean(row[key] for row in rows) for key in ("share", "total_sec", "at_least_sec"))
        yield [NAMES.get(cause, cause), f"{100 * share:.0f}", significant(total), significant(least), ceiling, reached]


def _limits(run: Run, store: Runs) -> Mapping[str, Any]:
    """What limited a run, from its result; empty if the result does not have it."""
    if not any(key.startswith(quantities.BOTTLENECK) for key in run.metrics):
        return {}
    with suppress(FileNotFoundError, ValueError):
        limits = json.loads(store.text(run, run_folder.RESULT)).get("bottleneck")
        return limits if isinstance(limits, dict) and "total_sec" in limits else {}
    return {}
