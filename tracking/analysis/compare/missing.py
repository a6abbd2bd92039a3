"""Combinations of stacks and machines that a report has no figure of, and why.

What belongs together is one part of a combination: a CUDA version comes with its PyTorch, an instance with its GPU. Of
every part the values count that a run has; all of them are combined.
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
NEEDS_DRIVER = "needs driver"  # in the message of a run that was refused for it
LONGEST = 200  # characters of a failure's message


def missing(task: Task, axes: Sequence[str], metric: str, store: Runs) -> list[tuple[Mapping[str, str], str]]:
    """The labels of each combination of which no run counts, in order, and why; [] without an axis of stacks."""
    if not any(is_stack(axis) for axis in axes):
        return []
    there = {tuple(setting.labels.items()): setting for setting in task.settings}
    rows: list[tuple[Mapping[str, str], str]] = []
    for values in product(*(_values(task, part) for part in parts(axes))):
        of_axes = {axis: value for part in values for axis, value in part}
        labels = {axis: of_axes[axis] for axis in axes}
        setting = there.get(tuple(labels.items()))
        if setting is None or not setting.measured(metric).n:
            rows.append((labels, _why(task, labels, setting, store)))
    return rows


def parts(axes: Sequence[str]) -> list[list[str]]:
    """The axes that are told apart: the software, the driver, the machine, and each other one by itself.

    `env.stack_id` is of the software and the driver.
    """
    software = STACK_AXES if "env.stack_id" in axes else STACK_AXES - {DRIVER}
    named = {axis: SHORT.get(axis, axis) for axis in axes}
    grouped = [[axis for axis in axes if named[axis] in together] for together in (software, MACHINE)]
    alone = [[axis] for axis in axes if named[axis] not in software | MACHINE]
    return sorted(filter(None, [*grouped, *alone]), key=lambda part: axes.index(part[0]))


def _values(task: Task, part: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    """What settings are by a part's axes, in their order, where all of it is known."""
    there = (tuple((axis, setting.labels[axis]) for axis in part) for setting in task.settings)
    return [values for values in dict.fromkeys(there) if NONE not in dict(values).values()]


def _why(task: Task, labels: Mapping[str, str], setting: Setting | None, store: Runs) -> str:
    excluded = [(run, why) for run, name, why in task.excluded if setting is not None and name == setting.name]
    reasons = list(dict.fromkeys(f"{why}{_message(run, store)}" for run, why in excluded))
    too_old = "" if any(NEEDS_DRIVER in why for why in reasons) else _too_old(task, labels)
    return "; ".join(filter(None, [*(reasons or [NOT_RUN]), too_old]))


def _message(run: Run, store: Runs) -> str:
    """What a run that was refused says of it, from its result.json; "" of others."""
    if run.failure != "bad_input":
        return ""
    try:
        message = str(json.loads(store.text(run, run_folder.RESULT))["failure"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f" ({' '.join(message.split())[:LONGEST]})"


def _too_old(task: Task, labels: Mapping[str, str]) -> str:
    """That the driver cannot run the CUDA of a combination; "" where it can, or where that is not known."""
    driver, cuda = (_common_tag(task, labels, key) for key in (DRIVER, CUDA))
    least = MIN_DRIVER.get(_branch(cuda)) if cuda else None
    if driver is None or least is None or not 0 < _branch(driver) < least:
        return ""
    return f"CUDA {cuda} {NEEDS_DRIVER} {least} or later, and this is {driver}"


def _common_tag(task: Task, labels: Mapping[str, str], key: str) -> str | None:
    """The one value of a tag that all runs have which are as these labels in the part that decides it."""
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
    """The first number of a version; 0 where it begins with none."""
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else 0
