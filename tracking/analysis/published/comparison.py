"""A report's settings beside published ones, in the same units: `report --reference mlperf,lambda`.

Also what a larger batch costs or saves, beside the published pairs of batch sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tracking.analysis.compare import Estimate, Setting, Task, estimate, estimates
from tracking.analysis.published import node_scaling
from tracking.analysis.published.reference_tables import printed_tables, reference_tables
from tracking.analysis.published.studies import DELL, Reference, known_studies, reference_rows
from tracking.analysis.report import Report
from tracking.analysis.results import Cell, Table
from tracking.base import quantities
from tracking.base.number_text import significant
from tracking.base.quantities import Quantity, quantity

# Studies print times in minutes, and some figures without a column in a report.
SHOWN = (
    replace(quantity(quantities.TIME_TO_ACCURACY_SEC), heading="time to accuracy (min)", scale=1 / 60),
    quantity(quantities.TIME_EPOCH_SEC),
    quantity(quantities.EPOCHS_TO_ACCURACY),
    quantity(quantities.THROUGHPUT_SAMPLES_PER_SEC),
    quantity(quantities.THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE),
    quantity(quantities.THROUGHPUT_TOKENS_PER_SEC),
    quantity(quantities.THROUGHPUT_TOKENS_PER_SEC_PER_DEVICE),
    quantity(quantities.THROUGHPUT_TARGET_TOKENS_PER_SEC),
    quantity(quantities.COST_TO_ACCURACY_USD),
)
OWN_RATES = (quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE)
# Studies that published only ratios, by the model of the ratios. Their tables are shown, since runs have no ratios.
MODEL_OF_RATIOS = {"stacks": "maskrcnn", "c4140": "resnet50"}
# Models whose published figures use another board or opponent than ours. Our rows are not put beside them.
OTHER_TASKS = {
    "minigo": (
        "Each row has its own board and target. From v0.6 on it is half of the games against a network of MLPerf's that"
        " is not available. No row is yours."
    )
}
NOTE = (
    "Published rows differ from yours in hardware, data, targets and software unless they say otherwise; their source"
    " says over how many runs. Your batch is the global batch size; theirs is what their source calls the batch size."
    " Yours: mean ± standard error over n runs."
)
STUDY = "dell"
TIME = quantities.TIME_TO_ACCURACY_SEC
AXES = ("batch_size", "global_batch_size")  # axes whose values are batch sizes
COLUMNS = ("", "hardware", "batch", "larger batch", "its time to accuracy (min)", "times as long")
PAIRS_NOTE = (
    "Times as long: the time to accuracy with the larger batch over that with the smaller one; ±: standard error."
    f' Yours: each batch beside the next larger one. Published: "{DELL}"; its batch is what it calls the batch size.'
)


def add_published(report: Report, names: Sequence[str]) -> None:
    """Add the figures of the named studies to a report. Raises ConfigError for an unknown study."""
    if names:
        tables, sentences = beside_published(report.tasks, names)
        report.tables += tables
        report.warnings += sentences
    if STUDY in names:
        made = [pairs_table(task, model_of(task)) for task in report.tasks]
        report.tables += [table for table in made if table]
    if node_scaling.STUDY in names:
        for number, task in enumerate(report.tasks, 1):
            of_model = model_of(task) == MODEL_OF_RATIOS[node_scaling.STUDY]
            if of_model and (scaled := node_scaling.compared(task, number)):
                report.tables.append(scaled[0])
                report.plots.append(scaled[1])


def beside_published(tasks: Sequence[Task], names: Sequence[str]) -> tuple[list[Table], list[str]]:
    """The studies' tables for the workloads, and for each workload a sentence on studies without figures of it.

    Raises ConfigError for an unknown study.
    """
    studies, models = known_studies(names), {model_of(task) for task in tasks}
    of_ratios = [name for name in studies if MODEL_OF_RATIOS.get(name) in models]
    tables = reference_tables(of_ratios) if of_ratios else []
    tables += [
        table
        for name in studies
        if name not in of_ratios and (known := {model for model in models if reference_rows([name], model)})
        for table in printed_tables(name, known)
    ]
    tables = [replace(table, kind="published") for table in tables]
    sentences: list[str] = []
    for task in tasks:
        model = model_of(task)
        rows = reference_rows(studies, model)
        tables += [apart(task, rows) if model in OTHER_TASKS else beside_table(task, rows)] if rows else []
        with_figures = {row.name for row in rows} | {name for name in of_ratios if MODEL_OF_RATIOS[name] == model}
        if absent := [name for name in studies if name not in with_figures]:
            sentences.append(f"{task.title}: nothing is published of {model} in {', '.join(absent)}")
    return tables, sentences


def model_of(task: Task) -> str:
    """The model in the params of the task's runs; "?" if no run names it."""
    runs = [*task.runs, *(run for run, _, _ in task.excluded)]
    return next((run.params["model"] for run in runs if "model" in run.params), "?")


def beside_table(task: Task, published: Sequence[Reference]) -> Table:
    """A table with a row per setting of the task, then the published rows, with every published quantity."""
    ours = [setting for setting in task.settings if setting.runs]
    shown = [
        facts
        for facts in SHOWN
        if any(facts.key in row.metrics for row in published)
        or (facts.key in OWN_RATES and any(setting.values(facts.key) for setting in ours))
    ]
    rows: list[list[Cell]] = [own_row(setting, shown) for setting in ours]
    for row in published:
        batch = None if row.batch_size is None else f"{row.batch_size:,}"
        figures: list[Cell] = [
            significant(row.metrics[facts.key] * facts.scale, 5) if facts.key in row.metrics else None
            for facts in shown
        ]
        heading = ": ".join(filter(None, [row.source, row.what]))
        rows.append([heading, row.hardware, str(row.gpus or ""), row.precision, batch, None, *figures])
    headings = ["", "hardware", "GPUs", "precision", "batch", "reached", *(facts.heading for facts in shown)]
    return Table(
        f"{task.title}, beside published figures", dict.fromkeys(headings, ""), rows, NOTE, "beside", task.title
    )


def apart(task: Task, published: Sequence[Reference]) -> Table:
    """A table of the published rows alone."""
    table = beside_table(replace(task, settings=[]), published)
    title = f"{task.title}, published figures of other tasks"
    return replace(table, title=title, note=OTHER_TASKS[model_of(task)], kind="published")


def own_row(setting: Setting, shown: Sequence[Quantity]) -> list[Cell]:
    """The row of a setting: its hardware and options, then the means of the shown quantities."""
    facts: list[Cell] = []
    for key in ("env.gpu", "gpus", "precision", "global_batch_size"):
        words = {run.params.get(key) or run.tags.get(key) or "?" for run in setting.runs}
        if words == {"none"}:  # without a GPU
            words = {run.tags.get("env.cpu", "CPU") for run in setting.runs}
        facts.append(", ".join(sorted(words)))
    cells: list[Cell] = []
    for figure in shown:
        mean = estimate(setting.measured(figure.key), figure.scale)
        cells.append(mean.text(setting.usual_n(figure.key)) if mean else None)
    share = setting.reached.text if setting.reached else None
    return [f"yours: {setting.name} (n={len(setting.runs)})", *facts, share, *cells]


def pairs_table(task: Task, model: str) -> Table | None:
    """The table of a workload with several batch sizes; None without them, and without a published pair."""
    published = _published(reference_rows([STUDY], model))
    own = _own(task) if published else []
    if not own:
        return None
    title = f"{task.title}: larger batches, beside published pairs"
    return Table(title, dict.fromkeys(COLUMNS, ""), [*own, *published], PAIRS_NOTE, "batch-pairs", task.title)


def _own(task: Task) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for axis in AXES:
        groups: dict[str, dict[int, Setting]] = {}
        for setting in task.settings:
            if setting.labels.get(axis, "").isdecimal() and estimate(setting.measured(TIME)):
                rest = " ".join(f"{key}={value}" for key, value in setting.labels.items() if key != axis)
                groups.setdefault(rest, {})[int(setting.labels[axis])] = setting
        for rest, by_batch in groups.items():
            for small, large in pairwise(sorted(by_batch)):
                time = estimate(by_batch[large].measured(TIME), 1 / 60)
                factor = estimates.gain(by_batch[small], by_batch[large], TIME)
                name = f"yours: {rest}" if rest else "yours"
                gpus = ", ".join(sorted({run.tags.get("env.gpu", "?") for run in by_batch[large].runs}))
                rows.append([name, gpus, f"{small:,}", f"{large:,}", _text(time), _text(factor)])
    return rows


def _text(value: Estimate | None) -> str:
    return value.text() if value else ""


def _published(references: Sequence[Reference]) -> list[list[Cell]]:
    groups: dict[tuple[str, str], dict[int, float]] = {}
    for row in references:
        if row.batch_size is not None:
            groups.setdefault((row.hardware, row.what), {})[row.batch_size] = row.metrics[TIME]
    return [
        [f"published: {name}".removesuffix(": "), hardware, f"{small:,}", f"{large:,}",
         significant(times[large] / 60, 5), f"{times[large] / times[small]:.3f}"]
        for (hardware, name), times in groups.items()
        for small, large in pairwise(sorted(times))
    ]  # fmt: skip
