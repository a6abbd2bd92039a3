"""The metrics of the evaluations: a row per setting, with the best and the last value of each metric."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.compare import Task
from tracking.analysis.report.setting_tables import ReportedFigure, mean_cell
from tracking.analysis.results import Table
from tracking.base import quantities

NOTE = "Best: over a run's evaluations; last: of its last evaluation. Both are means over runs."


def metrics_table(task: Task, axes: Sequence[str]) -> tuple[Table, list[ReportedFigure]] | None:
    """The table and its figures; None without a best value. Older runs' values without a direction are left out."""
    runs = [run for setting in task.settings for run in setting.trained]
    bests = sorted({key for run in runs for key in run.metrics if key.startswith(quantities.BEST)})
    names = [quantities.metric_name(key) for key in bests if any(setting.better(key) for setting in task.settings)]
    if not names:
        return None
    shown = [quantities.quantity(prefix + name) for name in names for prefix in (quantities.BEST, quantities.EVAL)]
    figures: list[ReportedFigure] = []
    rows = [
        [*setting.labels.values(), *(mean_cell(figures, task, setting, quantity) for quantity in shown)]
        for setting in task.settings
    ]
    headings = dict.fromkeys([*axes, *(quantity.heading for quantity in shown)], "")
    return Table(f"{task.title}: metrics", headings, rows, NOTE, "metrics", task.title), figures
