"""The table of limits: a row for each setting, a column for each cause that occurs."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.compare import Task, estimate
from tracking.analysis.report.setting_tables import ReportedFigure, mean_cell
from tracking.analysis.results import Table
from tracking.base import quantities
from tracking.measure.bottleneck import NAMES, limit

LEAST_SHOWN = 0.005  # causes below this share in every setting have no column
NOTE = (
    "Shares of the time on the clock, means over runs with their standard errors. The rest of the time has no "
    "measured cause."
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
