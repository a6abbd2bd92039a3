"""Speed and utilisation side by side, a row for each setting; if precisions differ, with the speed-up over fp32."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.compare import Setting, Task, estimate, estimates
from tracking.analysis.report.setting_tables import ReportedFigure, ids_of, mean_cell
from tracking.analysis.results import Table
from tracking.base import quantities

RATE, TIME = quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.TIME_TO_ACCURACY_SEC
SPEED = {key: (quantities.quantity(key).heading, quantities.RATIOS[key][2]) for key in (RATE, TIME)}
HARDWARE = {key: quantities.quantity(key).heading for key in quantities.OF_HARDWARE}
NOTE = "Utilisation: means over the training (docs/machine.md)."
ERROR = " ±: standard error of the mean over runs."


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
    note = NOTE + (ERROR if any(mean.error is not None for mean in means) else "")
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
