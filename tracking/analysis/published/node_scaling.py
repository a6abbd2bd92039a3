"""The scaling over nodes of a report's runs, beside the published study of C4140 servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracking.analysis.compare import Estimate, Setting, Task, estimate, estimates, speed_up
from tracking.analysis.published.studies import read
from tracking.analysis.report import Panel, Plot, Point, as_point, beside_lines, bounds_of, drawn
from tracking.analysis.results import Cell, Table
from tracking.base import quantities
from tracking.base.number_text import significant

STUDY = "c4140"
TIME, EPOCHS = quantities.TIME_TO_ACCURACY_SEC, quantities.EPOCHS_TO_ACCURACY
PUBLISHED = "published: C4140, 4 V100s a node"
SPEED_UP, EFFICIENCY, EPOCHS_TO = "speed-up", "efficiency (1 is ideal)", "epochs to the target"
NODE_COUNT = "nodes (number)"
NOTE = (
    "Relative to the fewest nodes of each side. Published: 4 x V100-SXM2 32 GB a node, MXNet, target top-1 0.749."
    " Yours: mean ± standard error. Hardware, data and targets differ unless yours say otherwise."
)


def published() -> dict[str, dict[float, float]]:
    """The published values, by quantity and number of nodes."""
    rows = {float(row["nodes"]): row for row in read("resnet50_c4140.csv")}
    return {
        SPEED_UP: {nodes: float(row["speedup"]) for nodes, row in rows.items()},
        EFFICIENCY: {nodes: float(row["speedup"]) / nodes for nodes, row in rows.items()},
        EPOCHS_TO: {nodes: float(row["epochs_to_accuracy"]) for nodes, row in rows.items()},
    }


def by_nodes(task: Task) -> dict[str, dict[str, dict[float, Estimate]]]:
    """The settings' estimates, by their labels without nodes, then by quantity, then by number of nodes."""
    quantities: dict[str, dict[str, dict[float, Estimate]]] = {}
    for setting in task.settings:
        nodes = number_of_nodes(setting)
        base = estimates.base_of(setting, task.settings)
        if nodes is None or base is None:
            continue
        ratios = speed_up(setting, base, TIME)
        rows = dict(zip((SPEED_UP, EFFICIENCY), ratios, strict=True)) if ratios else {}
        if epochs := estimate(setting.measured(EPOCHS)):
            rows[EPOCHS_TO] = epochs
        name = " ".join(f"{key}={value}" for key, value in setting.labels.items() if key != "nodes")
        for quantity, value in rows.items():
            quantities.setdefault(name, {}).setdefault(quantity, {})[nodes] = value
    return quantities


def number_of_nodes(setting: Setting) -> float | None:
    """The number of nodes of a setting's runs; None if they differ or do not say."""
    numbers = {run.params.get("nodes", "") for run in setting.runs}
    only = numbers.pop() if len(numbers) == 1 else ""
    return float(only) if only.isdecimal() else None


def compared(task: Task, number: int) -> tuple[Table, Plot] | None:
    """The table and the plot of a task that was run on several numbers of nodes; else None.

    `number` is the task's place in the report; the plot's file name begins with it.
    """
    ours = {name: rows for name, rows in by_nodes(task).items() if any(len(values) > 1 for values in rows.values())}
    if not ours:
        return None
    theirs = published()
    quantities = [quantity for quantity in theirs if any(quantity in rows for rows in ours.values())]
    headings = ["", "nodes", *(f"{quantity}, {whose}" for quantity in quantities for whose in ("yours", "published"))]
    cells: list[list[Cell]] = []
    for name, rows in ours.items():
        for nodes in sorted({nodes for values in rows.values() for nodes in values}):
            cells.append([name or "yours", f"{nodes:g}", *_row(rows, theirs, quantities, nodes)])
    title = f"{task.title}: scaling over nodes, beside the published study"
    table = Table(title, dict.fromkeys(headings, ""), cells, NOTE, "nodes", task.title)
    panels = {
        quantity: {
            **{name or "yours": _points(rows.get(quantity, {})) for name, rows in ours.items()},
            PUBLISHED: [Point(nodes, value) for nodes, value in sorted(theirs[quantity].items())],
        }
        for quantity in quantities
    }
    points = [line for lines in panels.values() for line in lines.values()]
    caption = f"{title}; error bars are standard errors{bounds_of(points)}"
    data = [Panel(NODE_COUNT, quantity, lines) for quantity, lines in panels.items()]
    plot = drawn(f"{number}-nodes-beside-published", caption, beside_lines(panels, NODE_COUNT), data)
    return table, replace(plot, about=task.title)


def _row(
    rows: dict[str, dict[float, Estimate]], theirs: dict[str, dict[float, float]], quantities: Sequence[str],
    nodes: float,
) -> list[Cell]:  # fmt: skip
    cells: list[Cell] = []
    for quantity in quantities:
        ours, published_value = rows.get(quantity, {}).get(nodes), theirs[quantity].get(nodes)
        cells += [ours.text() if ours else None, None if published_value is None else significant(published_value)]
    return cells


def _points(values: dict[float, Estimate]) -> list[Point]:
    return [as_point(nodes, value) for nodes, value in sorted(values.items())]
