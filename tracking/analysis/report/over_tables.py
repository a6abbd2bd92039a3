"""Speed-ups of all workloads over a named base, and of the same number of devices in more nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracking.analysis.compare import Setting, Task, axis_values, estimate, estimates, grouping
from tracking.analysis.results import Cell, Run, Table
from tracking.base import quantities

NO_BASE = "none"
NO_RATIO = "none: a ratio needs means above 0"
OVER_NOTE = (
    "By {metric}; ±: standard error. The base is the setting that is otherwise the same, else the only one of these"
    " values."
)
SHAPES_NOTE = "By {metric}; ±: standard error. Gain: how many times better than on the fewest nodes."
Base = Mapping[str, str]  # the value of each axis


def over_table(tasks: Sequence[Task], metric: str, base: Base) -> Table:
    """The table with a row for each workload and setting: its base and its score.

    Raises ValueError if no setting has the base's values.
    """
    check(tasks, base)
    rows: list[list[Cell]] = []
    for task in tasks:
        for setting in task.settings:
            held = base_for(setting, task.settings, base)
            score = _score(setting, held, metric) if held else ""
            rows.append([task.title, setting.name, held.name if held else NO_BASE, score])
    title = f"Score over {', '.join(f'{key}={value}' for key, value in base.items())}"
    columns = dict.fromkeys(["workload", "setting", "base", "score"], "")
    return Table(title, columns, rows, OVER_NOTE.format(metric=metric), "over")


def shapes_table(tasks: Sequence[Task], metric: str) -> Table | None:
    """Scale-up beside scale-out: a row for each workload and number of devices, a column for each number of nodes.

    None if no number of devices was run on several numbers of nodes.
    """
    groups = [(task, group) for task in tasks for group in shapes(task)]
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


def base_of(text: str) -> dict[str, str]:
    """The base of `env.gpu=Tesla P100,gpus=1`. Raises ValueError for other words."""
    pairs = [part.partition("=") for part in text.split(",")]
    base = {key.strip(): value.strip() for key, _, value in pairs}
    if not all(base) or not all(base.values()) or len(base) < len(pairs):
        raise ValueError(
            f"--over {text}: not an axis and value. Allowed: AXIS=VALUE, as in env.gpu='Tesla P100',gpus=1"
        )
    return base


def axes_with(base: Base, by: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """The axes of a report over this base: `by`, else the likely axes; then those of the base."""
    axes = list(by) or axis_values.likely_axes(runs)
    named = {grouping.SHORT.get(axis, axis) for axis in axes}
    return [*axes, *(key for key in base if grouping.SHORT.get(key, key) not in named)]


def base_for(setting: Setting, settings: Sequence[Setting], base: Base) -> Setting | None:
    """The setting that the base names: the one that is otherwise the same, else the only one; None without either."""
    named = [other for other in settings if _named(other, base)]
    same = [other for other in named if _rest(other, base) == _rest(setting, base)]
    return same[0] if same else named[0] if len(named) == 1 else None


def _named(setting: Setting, base: Base) -> bool:
    labels = {grouping.SHORT.get(axis, axis): value for axis, value in setting.labels.items()}
    return all(labels.get(grouping.SHORT.get(key, key)) == value for key, value in base.items())


def _rest(setting: Setting, base: Base) -> dict[str, str]:
    named = {grouping.SHORT.get(key, key) for key in base}
    return {axis: value for axis, value in setting.labels.items() if grouping.SHORT.get(axis, axis) not in named}


def check(tasks: Sequence[Task], base: Base) -> None:
    """Raise ValueError if no workload has a setting that the base names."""
    settings = [setting for task in tasks for setting in task.settings]
    if any(_named(setting, base) for setting in settings):
        return
    names = ",".join(f"{key}={value}" for key, value in base.items())
    axes = {grouping.SHORT.get(key, key) for key in base}
    allowed = {
        ",".join(f"{axis}={value}" for axis, value in setting.labels.items() if grouping.SHORT.get(axis, axis) in axes)
        for setting in settings
    }
    raise ValueError(f"--over {names}: no run has these values. Allowed: {'; '.join(sorted(allowed))}")


def shapes(task: Task) -> list[dict[int, Setting]]:
    """Groups of settings that differ only in their number of nodes, by that number. Their devices are equally many."""
    groups: dict[tuple[float, tuple[tuple[str, str], ...]], dict[int, Setting]] = {}
    for setting in task.settings:
        nodes = {run.params.get("nodes", "") for run in setting.trained}
        if setting.devices and len(nodes) == 1 and (number := nodes.pop()).isdecimal():
            rest = tuple(grouping.apart_from_devices(setting.labels).items())
            groups.setdefault((setting.devices, rest), {})[int(number)] = setting
    order = sorted(groups, key=lambda place: ([grouping.in_order(value) for _, value in place[1]], place[0]))
    return [dict(sorted(groups[place].items())) for place in order if len(groups[place]) > 1]
