"""Speed-ups over a named base, and over the same number of devices in fewer nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracking.analysis.compare import Setting, Task, axis_values, grouping
from tracking.analysis.results import Run

Base = Mapping[str, str]  # the value of each axis


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
