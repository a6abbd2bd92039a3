"""Combinations of stacks and machines without a figure in a report, and the reasons.

Axes that change together form one part: a CUDA version comes with its PyTorch, an instance with its GPU. Each part
takes the values that some run has. All values of all parts are combined.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product

from tracking.analysis.compare.grouping import SHORT, STACK_AXES, Setting, Task, is_stack
from tracking.analysis.results import NONE, Run, Runs
from tracking.machine.stacks import MIN_DRIVER
from tracking.record import run_folder

DRIVER, CUDA = "env.driver", "env.cuda"
MACHINE = {"instance", "env.gpu", "env.gpu_count", "env.node", "env.cpu", "env.topology", "env.hardware_id"}
NOT_RUN = "not run"
NEEDS_DRIVER = "needs driver"  # part of the message of a run that was refused for its driver
LONGEST = 200  # characters of a failure's message


def missing(task: Task, axes: Sequence[str], metric: str, store: Runs) -> list[tuple[Mapping[str, str], str]]:
    """The labels of each combination without a counted run, in order, and the reason; [] without a stack axis."""
    if not any(is_stack(axis) for axis in axes):
        return []
    by_labels = {tuple(setting.labels.items()): setting for setting in task.settings}
    rows: list[tuple[Mapping[str, str], str]] = []
    for values in product(*(_values(task, part) for part in parts(axes))):
        by_axis = {axis: value for part in values for axis, value in part}
        labels = {axis: by_axis[axis] for axis in axes}
        setting = by_labels.get(tuple(labels.items()))
        if setting is None or not setting.measured(metric).n:
            rows.append((labels, _reason(task, labels, setting, store)))
    return rows


def parts(axes: Sequence[str]) -> list[list[str]]:
    """The axes, grouped by what changes together: software, driver, machine; any other axis is its own group.

    `env.stack_id` covers software and driver, so with it the driver is part of the software.
    """
    software = STACK_AXES if "env.stack_id" in axes else STACK_AXES - {DRIVER}
    named = {axis: SHORT.get(axis, axis) for axis in axes}
    grouped = [[axis for axis in axes if named[axis] in together] for together in (software, MACHINE)]
    alone = [[axis] for axis in axes if named[axis] not in software | MACHINE]
    return sorted(filter(None, [*grouped, *alone]), key=lambda part: axes.index(part[0]))


def _values(task: Task, part: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    """The values that settings have on a part's axes, in order; settings with an unknown value are skipped."""
    of_settings = (tuple((axis, setting.labels[axis]) for axis in part) for setting in task.settings)
    return [values for values in dict.fromkeys(of_settings) if NONE not in dict(values).values()]


def _reason(task: Task, labels: Mapping[str, str], setting: Setting | None, store: Runs) -> str:
    excluded = [(run, why) for run, name, why in task.excluded if setting is not None and name == setting.name]
    reasons = list(dict.fromkeys(f"{why}{_message(run, store)}" for run, why in excluded))
    too_old = "" if any(NEEDS_DRIVER in why for why in reasons) else _too_old(task, labels)
    return "; ".join(filter(None, [*(reasons or [NOT_RUN]), too_old]))


def _message(run: Run, store: Runs) -> str:
    """The message of a refused run, from its result.json; "" for other runs."""
    if run.failure != "bad_input":
        return ""
    try:
        message = str(json.loads(store.text(run, run_folder.RESULT))["failure"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f" ({' '.join(message.split())[:LONGEST]})"


def _too_old(task: Task, labels: Mapping[str, str]) -> str:
    """A sentence if the driver cannot run the CUDA of a combination; "" if it can, or if either is not known."""
    driver, cuda = (_common_tag(task, labels, key) for key in (DRIVER, CUDA))
    least = MIN_DRIVER.get(_branch(cuda)) if cuda else None
    if driver is None or least is None or not 0 < _branch(driver) < least:
        return ""
    return f"CUDA {cuda} {NEEDS_DRIVER} {least} or later, and this is {driver}"


def _common_tag(task: Task, labels: Mapping[str, str], key: str) -> str | None:
    """The tag's value in runs with these labels on the axes that decide the tag; None if it differs or is unknown."""
    deciding = [part for part in parts(list(labels)) if key in [SHORT.get(axis, axis) for axis in part]]
    software = STACK_AXES - {DRIVER}
    deciding = deciding or [
        part
        for part in parts(list(labels))
        if any(SHORT.get(axis, axis) in (software if key == CUDA else MACHINE) for axis in part)
    ]
    if not deciding:
        return None
    same = [setting for setting in task.settings if all(setting.labels[axis] == labels[axis] for axis in deciding[0])]
    names = {setting.name for setting in same}
    runs = [run for setting in same for run in setting.runs] + [run for run, name, _ in task.excluded if name in names]
    values = {run.tags[key] for run in runs if key in run.tags}
    return values.pop() if len(values) == 1 else None


def _branch(version: str) -> int:
    """The first number of a version; 0 if the version does not begin with a number."""
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else 0
