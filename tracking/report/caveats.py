"""What to be careful about in a report: which of its runs are not in every figure, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracking.compare import Setting, Task, given_up
from tracking.report.pictures import TIME
from tracking.statistics import counted


def caveats(tasks: Sequence[Task], with_missed: bool) -> list[str]:
    """What is to be known of all of a report, before any single comparison."""
    warnings = []
    if len(tasks) > 1:
        names = "; ".join(task.title for task in tasks)
        warnings.append(f"{len(tasks)} workloads, compared within each and never with one another: {names}")
    for task in tasks:
        for setting in task.settings:
            if setting.num_missed and setting.reached:
                warnings.append(
                    f"{task.title}: {setting.name}: {setting.reached.text} reached the target; the others count "
                    "against it in figures to accuracy"
                )
            if setting.stopped:
                stopped = given_up.stopped_words(setting.stopped)
                warnings.append(f"{task.title}: {setting.name}: {stopped}; beyond that nothing is known of it")
            if unknown := setting.measured(TIME).missed.count(0.0):
                warnings.append(
                    f"{task.title}: {setting.name}: of {counted(unknown, 'run')} that did not reach the target nothing "
                    "says by when: they count as no time at all where another setting is called better"
                )
            if not setting.runs:
                warnings.append(f"{task.title}: {setting.name}: {_not_averaged(task, setting)}")
    if with_missed:
        warnings.append("--with-missed: n counts runs that missed the target, too")
    return warnings


def _not_averaged(task: Task, setting: Setting) -> str:
    """That no run of a setting is in every mean, and why."""
    whys = Counter(why for _, name, why in task.excluded if name == setting.name)
    if setting.total == 1:
        return f"its only run is not in every mean: {next(iter(whys))}"
    counts = ", ".join(f"{why} ({number})" for why, number in whys.most_common())
    return f"none of its {setting.total} runs is in every mean: {counts}"
