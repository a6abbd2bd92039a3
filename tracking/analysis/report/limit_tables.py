"""What limits each setting, by cause; how near it is to what is possible; its speed beside the utilisation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

from tracking.analysis.compare import Setting, Task, estimate, estimates
from tracking.analysis.report.setting_tables import ReportedFigure, ids_of, mean_cell
from tracking.analysis.results import Run, Runs, Table
from tracking.base import quantities
from tracking.base.number_text import counted, significant
from tracking.measure import bottleneck
from tracking.measure.bottleneck import NAMES, limit, possible
from tracking.record import run_folder

LEAST_SHOWN = 0.005  # causes below this share in every setting have no column
NOTE = (
    "Shares of the time on the clock, means over runs with their standard errors. The rest of the time has no "
    "measured cause."
)
RATE, TIME = quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.TIME_TO_ACCURACY_SEC
SPEED = {key: (quantities.quantity(key).heading, quantities.RATIOS[key][2]) for key in (RATE, TIME)}
HARDWARE = {key: quantities.quantity(key).heading for key in quantities.OF_HARDWARE}
UTILIZATION_NOTE = "Utilisation: means over the training (docs/machine.md)."
ERROR = " ±: standard error of the mean over runs."
KIND = "possible"
COLUMNS = ("limit", "share of the time (%)", "now (s)", "without it at least (s)", "ceiling", "reached (%)")
POSSIBLE_NOTE = (
    "Means over the runs with this limit. Without one limit, another takes its place. So these times are lower bounds. "
    "Ceilings were measured on the same hardware (docs/bottleneck.md)."
)


def limits_table(task: Task, axes: Sequence[str]) -> tuple[Table, list[ReportedFigure]] | None:
    """The table and its figures; None if no run recorded what limited it."""
    means = {name: _shares(task, name) for name in NAMES}
    columns = [name for name in NAMES if any(share >= LEAST_SHOWN for share in means[name].values())]
    if not columns:
        return None
    figures: list[ReportedFigure] = []
    rows: list[list[str]] = []
    for setting in task.settings:
        shares = {name: means[name][setting.name] for name in NAMES if setting.name in means[name]}
        if not shares:
            continue
        row = [*setting.labels.values(), NAMES[limit(shares)]]
        for name in columns:
            row.append(mean_cell(figures, task, setting, quantities.quantity(quantities.bottleneck(name))))
        rows.append(row)
    headings = dict.fromkeys(
        [*axes, "limited by", *(quantities.quantity(quantities.bottleneck(name)).heading for name in columns)], ""
    )
    return Table(f"{task.title}: what limited it", headings, rows, NOTE, "limits", task.title), figures


def _shares(task: Task, name: str) -> dict[str, float]:
    """The mean share of a cause, by setting."""
    values: dict[str, float] = {}
    for setting in task.settings:
        mean = estimate(setting.measured(quantities.bottleneck(name)))
        if mean:
            values[setting.name] = mean.mean
    return values


def utilization_table(task: Task, axes: Sequence[str]) -> tuple[Table, list[ReportedFigure]] | None:
    """The table and its figures; None if no run recorded its utilisation."""
    shown = {key: words for key, words in HARDWARE.items() if _is_measured(task, key)}
    if not shown:
        return None
    figures: list[ReportedFigure] = []
    bases = {setting.name: full_precision(setting, task.settings) for setting in task.settings}
    speeds = {key: words for key, words in SPEED.items() if _is_measured(task, key)}
    ratios = any(bases.values())
    rows: list[list[str]] = []
    means: list[estimates.Estimate] = []
    for setting in task.settings:
        row = [*setting.labels.values()]
        for key, (_, heading) in speeds.items():
            mean = _measured(setting, key)
            row.append(mean.text(setting.usual_n(key)) if mean else "")
            means += [mean] if mean else []
            row += [_ratio(figures, task, setting, bases[setting.name], key, heading)] if ratios else []
        row += [mean_cell(figures, task, setting, quantities.quantity(key)) for key in shown]
        rows.append(row)
    headings = [*axes]
    for words, over in speeds.values():
        headings += [words, over] if ratios else [words]
    columns = dict.fromkeys([*headings, *shown.values()], "")
    means += [figure.estimate for figure in figures]
    note = UTILIZATION_NOTE + (ERROR if any(mean.error is not None for mean in means) else "")
    return Table(f"{task.title}: speed and utilisation", columns, rows, note, "utilization", task.title), figures


def full_precision(setting: Setting, settings: Sequence[Setting]) -> Setting | None:
    """The same setting in fp32; None without an axis `precision`, or if it was not run."""
    if "precision" not in setting.labels:
        return None
    labels = {**setting.labels, "precision": "fp32"}
    return next((other for other in settings if dict(other.labels) == labels), None)


def _ratio(
    figures: list[ReportedFigure], task: Task, setting: Setting, base: Setting | None, key: str, heading: str
) -> str:
    ratios = estimates.speed_up(setting, base, key) if base else None
    if ratios is None or base is None:
        return ""
    ids = ids_of(setting, key)
    figures.append(ReportedFigure(task.title, setting.labels, heading, key, ratios[0], ids, base.labels))
    return ratios[0].text()


def _measured(setting: Setting, key: str) -> estimates.Estimate | None:
    return estimate(setting.measured(key))


def _is_measured(task: Task, key: str) -> bool:
    return any(_measured(setting, key) for setting in task.settings)


def possible_table(task: Task, axes: Sequence[str], store: Runs) -> Table | None:
    """A row for each setting and limit, the largest limit first; None if no run recorded its limits."""
    rows = [[*setting.labels.values(), *row] for setting in task.settings for row in _rows(setting, store)]
    headings = dict.fromkeys([*axes, *COLUMNS], "")
    runs = [run for setting in task.settings for run in setting.trained]
    shared = sum(bottleneck.shared_cores(run.tags.get("neighbours", "")) for run in runs)
    note = POSSIBLE_NOTE + (
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
