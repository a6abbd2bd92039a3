"""What a larger batch costs or saves in a report's runs, beside the published pairs of batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tracking.analysis.compare import Estimate, Setting, Task, estimate, estimates
from tracking.analysis.published.studies import DELL, Reference, reference_rows
from tracking.analysis.results import Cell, Table
from tracking.base import quantities
from tracking.base.number_text import significant

STUDY = "dell"
TIME = quantities.TIME_TO_ACCURACY_SEC
AXES = ("batch_size", "global_batch_size")  # axes whose values are batch sizes
COLUMNS = ("", "hardware", "batch", "larger batch", "its time to accuracy (min)", "times as long")
NOTE = (
    "Times as long: the time to accuracy with the larger batch over that with the smaller one; ±: standard error."
    f' Yours: each batch beside the next larger one. Published: "{DELL}"; its batch is what it calls the batch size.'
)


def pairs_table(task: Task, model: str) -> Table | None:
    """The table of a workload with several batch sizes; None without them, and without a published pair."""
    published = _published(reference_rows([STUDY], model))
    own = _own(task) if published else []
    if not own:
        return None
    title = f"{task.title}: larger batches, beside published pairs"
    return Table(title, dict.fromkeys(COLUMNS, ""), [*own, *published], NOTE, "batch-pairs", task.title)


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
