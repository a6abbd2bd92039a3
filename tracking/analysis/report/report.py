"""A report: from runs to tables with their uncertainty, an answer in two sentences, and what to be careful about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracking.analysis.compare import (
    Comparison,
    Factors,
    Setting,
    Task,
    axis_values,
    best_of,
    best_stacks,
    compare,
    confounding,
    estimates,
    factors,
    grouping,
    is_stack,
    missing,
)
from tracking.analysis.report import setting_tables, stack_tables, verdicts
from tracking.analysis.report.answer import answer, spent
from tracking.analysis.report.caveats import caveats, unpaired
from tracking.analysis.report.comparison_table import comparison_table
from tracking.analysis.report.limit_tables import limits_table
from tracking.analysis.report.pictures import Plot, Plotter, roofline_chart
from tracking.analysis.report.questions import over_table, tables_over_all, within_table
from tracking.analysis.report.sentences import Sentence
from tracking.analysis.report.setting_tables import ReportedFigure
from tracking.analysis.report.utilization_table import utilization_table
from tracking.analysis.report.verdicts import Verdict
from tracking.analysis.results import Run, Runs, Table, need_finished, newest_attempts
from tracking.analysis.statistics import counted
from tracking.base import quantities
from tracking.store.mirror import UID_TAG

RUN_AGAIN, SHARED_MACHINE = "run again", "shared its machine"  # why a run that was asked for is left out


@dataclass
class Report:
    """What is written: as a page, Markdown, CSV and JSON."""

    title: str
    source: str
    axes: Sequence[str]
    metric: str
    tasks: Sequence[Task]
    runs: Sequence[Run]
    with_missed: bool = False
    selectors: Sequence[str] = ()  # what was asked for
    with_neighbours: bool = False
    within: Sequence[str] = ()  # limits of time that were asked about
    over: Mapping[str, str] = field(default_factory=dict)  # the base of scores that was asked for
    left_out: list[tuple[Run, str]] = field(default_factory=list)  # runs that were asked for and are in no setting
    answers: list[str] = field(default_factory=list)  # one a workload
    warnings: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[ReportedFigure] = field(default_factory=list)
    comparisons: list[tuple[str, Comparison]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    @property
    def answer(self) -> str:
        return " ".join(self.answers)

    def plain(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return {
            "title": self.title,
            "source": self.source,
            "selectors": list(self.selectors),
            "with_neighbours": self.with_neighbours,
            "by": list(self.axes),
            "metric": self.metric,
            "with_missed": self.with_missed,
            "within": list(self.within),
            "over": dict(self.over),
            "answer": self.answer,
            "spent_usd": {task.title: spent(task) for task in self.tasks},
            "warnings": self.warnings,
            "tables": [_plain_table(table) for table in self.tables],
            "reached": [_plain_share(task.title, setting) for task in self.tasks for setting in task.settings],
            "figures": [_plain_figure(figure) for figure in self.figures],
            "comparisons": _plain_comparisons(self),
            "best": [verdict.plain() for verdict in self.verdicts],
            "sentences": [sentence.plain() for sentence in self.sentences],
            "excluded": [
                _plain_run(run, task.title) | {"setting": name, "why": why}
                for task in self.tasks
                for run, name, why in task.excluded
            ],
            "left_out": [_plain_id(run) | {"why": why} for run, why in self.left_out],
            "runs": [
                _plain_run(run, task.title) | {"setting": dict(setting.labels)}
                for task in self.tasks
                for setting in task.settings
                for run in setting.runs
            ],
        }  # fmt: skip


def make(
    store: Runs, selectors: Sequence[str], runs: Sequence[Run], by: Sequence[str] = (), metric: str | None = None,
    with_missed: bool = False, progress: Callable[[], None] = lambda: None,
) -> Report:  # fmt: skip
    """The report of these runs. Raises ValueError where they cannot be reported, and what `store` raises."""
    newest = newest_attempts(runs)
    kept = {run.id for run in newest}
    superseded, runs = [(run, RUN_AGAIN) for run in runs if run.id not in kept], newest
    need_finished(runs, selectors)
    if metric and not any(metric in run.metrics for run in runs):
        there = sorted({key for run in runs for key in run.metrics if not key.startswith(quantities.SYSTEM)})
        raise ValueError(f"--metric {metric}: no run has it; there are: {', '.join(there)}")
    values = axis_values.Values(store, runs)
    axes = axis_values.with_pairs(list(by) or axis_values.likely_axes(runs), runs)
    values.check(axes, runs)
    tasks = grouping.group(runs, axes, values, with_missed)
    title, metric = " ".join(selectors), metric or estimates.main_metric(tasks)
    report = Report(title, store.source, axes, metric, tasks, runs, with_missed, selectors, left_out=superseded)
    report.warnings = caveats(tasks, with_missed)
    if superseded:
        attempts = counted(len(superseded), "failed attempt")
        report.warnings.append(f"left out: {attempts} of jobs that their sweep ran again")
    for task in tasks:
        report.warnings += confounding.warnings(task, axes, store, values, progress)
        _add_workload(report, task, store)
    if speed_ups := setting_tables.speed_up_table(tasks, report.metric):
        report.tables.append(speed_ups)
    report.tables += tables_over_all(store, tasks, report.metric)
    table, sentence = setting_tables.excluded_table(tasks, len(runs))
    report.tables.append(table)
    report.sentences.append(sentence)
    for task in tasks:
        _add_answer(report, task)
    about_stacks = {task.title: _about_stacks(report, task) for task in tasks}
    report.plots = list(Plotter(store, tasks, progress, about_stacks).plots())
    if not any(plot.name == roofline_chart.NAME for plot in report.plots):  # Else its caption says so.
        report.warnings += roofline_chart.absent(tasks)
    return report


def add_asked(report: Report, within: Sequence[str], over: Mapping[str, str]) -> None:
    """Put what is asked beyond the settings before the table of runs that do not count. Raises ValueError where it
    cannot be answered."""
    within = list(dict.fromkeys(within))
    report.within, report.over = within, over
    made = [within_table(report.tasks, within)] if within else []
    made += [over_table(report.tasks, report.metric, over)] if over else []
    place = next(place for place, table in enumerate(report.tables) if table.kind == "excluded")
    report.tables[place:place] = made


def _add_workload(report: Report, task: Task, store: Runs) -> None:
    table, figures = setting_tables.settings_table(task, report.axes)
    report.tables.append(table)
    report.figures += figures
    for made in (limits_table(task, report.axes), utilization_table(task, report.axes)):
        if made:
            report.tables.append(made[0])
            report.figures += made[1]
    pairs = compare(task, report.metric)
    report.comparisons += [(task.title, pair) for pair in pairs]
    report.warnings += unpaired(task, pairs, report.metric)
    if pairs:
        table, said = comparison_table(task, report.metric, pairs)
        report.tables.append(table)
        report.sentences += said
    best = best_of(task.settings, pairs, report.metric)
    report.verdicts += [Verdict(task.title, best)] if best else []
    if any(is_stack(axis) for axis in report.axes):
        stacks = best_stacks(task, report.metric, pairs)
        report.verdicts += [Verdict(task.title, stack.best, stack) for stack in stacks]
        of_stacks, said = stack_tables.stack_tables(task, report.metric, stacks)
        report.tables += of_stacks
        report.sentences += said
    if rows := missing(task, report.axes, report.metric, store):
        report.tables.append(stack_tables.missing_table(task, report.axes, rows))


def _add_answer(report: Report, task: Task) -> None:
    pairs = [pair for title, pair in report.comparisons if title == task.title]
    bests = (verdict.best for verdict in report.verdicts if verdict.task == task.title and verdict.stack is None)
    said = answer(task, report.metric, next(bests, None), pairs)
    report.sentences += said
    report.answers.append(" ".join(sentence.text for sentence in said))


def _about_stacks(report: Report, task: Task) -> list[str]:
    """What is said of the best and the worst stack."""
    return [table.note for table in report.tables if (table.kind, table.about) == ("stacks", task.title)]


def _plain_table(table: Table) -> dict[str, Any]:
    about = {"title": table.title, "kind": table.kind, "about": table.about, "note": table.note}
    return about | {"columns": list(table.columns), "rows": table.text()}


def _plain_figure(figure: ReportedFigure) -> dict[str, Any]:
    estimate = figure.estimate
    return {
        "workload": figure.task,
        "setting": dict(figure.setting),
        "figure": figure.heading,
        "key": figure.key,
        "n": estimate.n,
        "mean": estimate.mean,
        "bound": estimate.bound,
        "standard_error": estimate.error,
        "olympic_mean": estimate.olympic,
        "text": estimate.text(),
        "runs": list(figure.runs),
        "over": None if figure.base is None else dict(figure.base),
    }


def _plain_share(task: str, setting: Setting) -> dict[str, Any]:
    share = setting.reached
    numbers = {"num_reached": share.reached, "n": share.n, "low": share.low, "high": share.high} if share else {}
    return {"workload": task, "setting": dict(setting.labels), **numbers}


def _plain_comparisons(report: Report) -> list[dict[str, Any]]:
    num_tests = Counter(title for title, pair in report.comparisons if pair.p is not None)
    parts: dict[tuple[str, str, str], Factors] = {}
    for task in report.tasks:
        pairs = [pair for title, pair in report.comparisons if title == task.title]
        for each in factors(pairs, report.metric):
            parts[task.title, each.pair.better.name, each.pair.worse.name] = each
    return [
        verdicts.comparison(title, report.metric, pair, num_tests[title])
        | {"parts": verdicts.parts(parts.get((title, pair.better.name, pair.worse.name)))}
        for title, pair in report.comparisons
    ]


def _plain_run(run: Run, task: str) -> dict[str, Any]:
    return _plain_id(run) | {"workload": task}


def _plain_id(run: Run) -> dict[str, Any]:
    return {"id": run.id, "uid": run.tags.get(UID_TAG), "name": run.name}
