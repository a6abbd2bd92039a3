"""Speed-ups of all workloads over a named base, and of the same number of devices in more nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.compare import Setting, Task, estimate, estimates, grouping
from tracking.analysis.report.questions import over
from tracking.analysis.report.questions.over import Base
from tracking.analysis.results import Cell, Table
from tracking.base import quantities

NO_BASE = "none"
NO_RATIO = "none: a ratio needs means above 0"
OVER_NOTE = (
    "By {metric}; ±: standard error. The base is the setting that is otherwise the same, else the only one of these"
    " values."
)
SHAPES_NOTE = "By {metric}; ±: standard error. Gain: how many times better than on the fewest nodes."


def over_table(tasks: Sequence[Task], metric: str, base: Base) -> Table:
    """The table with a row for each workload and setting: its base and its score.

    Raises ValueError if no setting has the base's values.
    """
    over.check(tasks, base)
    rows: list[list[Cell]] = []
    for task in tasks:
        for setting in task.settings:
            held = over.base_for(setting, task.settings, base)
            score = _score(setting, held, metric) if held else ""
            rows.append([task.title, setting.name, held.name if held else NO_BASE, score])
    title = f"Score over {', '.join(f'{key}={value}' for key, value in base.items())}"
    columns = dict.fromkeys(["workload", "setting", "base", "score"], "")
    return Table(title, columns, rows, OVER_NOTE.format(metric=metric), "over")


def shapes_table(tasks: Sequence[Task], metric: str) -> Table | None:
    """Scale-up beside scale-out: a row for each workload and number of devices, a column for each number of nodes.

    None if no number of devices was run on several numbers of nodes.
    """
    groups = [(task, group) for task in tasks for group in over.shapes(task)]
    if not groups:
        return None
    counts = sorted({nodes for _, group in groups for nodes in group})
    heading = quantities.quantity(metric).heading or metric
    columns = ["workload", "setting", "devices", *(f"{heading} on {nodes_words(nodes)}" for nodes in counts)]
    columns += [f"gain on {nodes_words(nodes)}" for nodes in counts[1:]]
    rows: list[list[Cell]] = []
    for task, group in groups:
        fewest = next(iter(group.values()))
        rest = " ".join(f"{axis}={value}" for axis, value in grouping.apart_from_devices(fewest.labels).items())
        row: list[Cell] = [task.title, rest, f"{fewest.devices:g}"]
        row += [_mean(group.get(nodes), metric) for nodes in counts]
        row += [_gain(group.get(nodes), fewest, metric) for nodes in counts[1:]]
        rows.append(row)
    note = SHAPES_NOTE.format(metric=metric)
    return Table("The same devices in more nodes", dict.fromkeys(columns, ""), rows, note, "shapes")


def nodes_words(nodes: int) -> str:
    return f"{nodes} node{'s' * (nodes != 1)}"


def _mean(setting: Setting | None, metric: str) -> str:
    facts = quantities.quantity(metric)
    mean = estimate(setting.measured(metric), facts.scale if facts.heading else 1.0) if setting else None
    return mean.text() if mean else ""


def _gain(setting: Setting | None, fewest: Setting, metric: str) -> str:
    return _score(setting, fewest, metric) if setting and setting is not fewest else ""


def _score(setting: Setting, base: Setting, metric: str) -> str:
    """How many times better a setting is than its base, or why no ratio says it; "" if something is not known."""
    if not estimates.has_ratio(setting, base, metric):
        return NO_RATIO
    gain = estimates.gain(setting, base, metric)
    return gain.text() if gain else ""
