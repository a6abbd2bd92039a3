"""A report's settings beside published ones, in the same units: `report --reference mlperf,lambda`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracking.compare import Quantity, Setting, Task, estimate
from tracking.published.studies import Reference, check, reference_rows
from tracking.published.tables import reference_tables
from tracking.report import Report
from tracking.results import Cell, Table

QUANTITIES = (
    Quantity("time to accuracy (min)", "time/to_accuracy_sec", 1 / 60),
    Quantity("minutes an epoch", "time/epoch_sec", 1 / 60),
    Quantity("epochs", "epochs/to_accuracy"),
    Quantity("samples/s", "throughput/samples_per_sec"),
    Quantity("samples/s a device", "throughput/samples_per_sec_per_device"),
    Quantity("tokens/s", "throughput/tokens_per_sec"),
    Quantity("cost to accuracy (USD)", "cost/to_accuracy_usd"),
)
WHOLE = {
    "stacks": "maskrcnn",
    "c4140": "resnet50",
}  # studies that published ratios alone, of this model: shown as tables
NOTE = (
    "Published rows are of other hardware, data, targets and software than yours unless they say so, and of as many"
    " runs as their source says. Yours: mean ± standard error over n runs."
)


def add(report: Report, names: Sequence[str]) -> None:
    """Put published figures into a report. Raises ConfigError for an unknown study."""
    if names:
        tables, sentences = beside(report.tasks, names)
        report.tables += tables
        report.warnings += sentences


def beside(tasks: Sequence[Task], names: Sequence[str]) -> tuple[list[Table], list[str]]:
    """A table for each workload of which something is published, and a sentence for each of which nothing is.

    Raises ConfigError for an unknown study.
    """
    models = {model_of(task) for task in tasks}
    whole = [name for name in check(names) if WHOLE.get(name) in models]
    tables, sentences = [replace(one, kind="published") for one in reference_tables(whole)] if whole else [], []
    rest = [name for name in names if name not in WHOLE]
    for task in tasks if rest else ():
        model = model_of(task)
        published = reference_rows(rest, model)
        if published:
            tables.append(table(task, published))
        else:
            sentences.append(f"{task.title}: nothing is published of {model} in {', '.join(rest)}")
    return tables, sentences


def model_of(task: Task) -> str:
    runs = [*task.runs, *(run for run, _, _ in task.excluded)]
    return next((run.params["model"] for run in runs if "model" in run.params), "?")


def table(task: Task, published: Sequence[Reference]) -> Table:
    ours = [setting for setting in task.settings if setting.runs]
    shown = [
        one
        for one in QUANTITIES
        if any(one.key in row.metrics for row in published)
        or (one.key.startswith("throughput/samples") and any(setting.values(one.key) for setting in ours))
    ]
    rows: list[list[Cell]] = [own_row(setting, shown) for setting in ours]
    for row in published:
        batch = None if row.global_batch_size is None else f"{row.global_batch_size:,}"
        figures: list[Cell] = [
            f"{row.metrics[one.key] * one.scale:,.5g}" if one.key in row.metrics else None for one in shown
        ]
        what = ": ".join(filter(None, [row.source, row.what]))
        rows.append([what, row.hardware, str(row.gpus or ""), row.precision, batch, *figures])
    headings = ["", "hardware", "GPUs", "precision", "global batch", *(one.heading for one in shown)]
    return Table(
        f"{task.title}, beside published figures", dict.fromkeys(headings, ""), rows, NOTE, "beside", task.title
    )


def own_row(setting: Setting, shown: Sequence[Quantity]) -> list[Cell]:
    facts: list[Cell] = []
    for key in ("env.gpu", "gpus", "precision", "global_batch_size"):
        found = {run.params.get(key) or run.tags.get(key) or "?" for run in setting.runs}
        if found == {"none"}:  # no GPU in use
            found = {run.tags.get("env.cpu", "CPU") for run in setting.runs}
        facts.append(", ".join(sorted(found)))
    cells: list[Cell] = []
    for one in shown:
        found_estimate = estimate(setting.values(one.key), one.scale)
        cells.append(found_estimate.text(len(setting.runs)) if found_estimate else None)
    return [f"yours: {setting.name} (n={len(setting.runs)})", *facts, *cells]
