"""Make a report of runs: the answer, the ranked settings, the tables, the pictures and the warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracking.analysis.compare import (
    Best,
    Comparison,
    Task,
    axis_values,
    best_of,
    best_stacks,
    compare,
    confounding,
    estimates,
    grouping,
    is_stack,
    missing,
)
from tracking.analysis.report import plain, setting_tables, stack_sentences
from tracking.analysis.report.caveats import caveats, unpaired
from tracking.analysis.report.comparison_table import comparison_table
from tracking.analysis.report.gain_tables import tables_over_all
from tracking.analysis.report.limit_tables import limits_table, possible_table, utilization_table
from tracking.analysis.report.over_tables import over_table
from tracking.analysis.report.pictures import Plot, Plotter, roofline_chart
from tracking.analysis.report.ranking_table import KIND, ranking_table
from tracking.analysis.report.sentences import Sentence, answer, beside, goodput, spent
from tracking.analysis.report.setting_tables import ReportedFigure, metrics_table
from tracking.analysis.report.verdicts import Verdict
from tracking.analysis.report.within import within_table
from tracking.analysis.results import Run, Runs, Table, newest_attempts, none_finished
from tracking.base import quantities
from tracking.base.near_names import near_or_all
from tracking.base.number_text import counted

RUN_AGAIN, SHARED_MACHINE = "run again", "shared its machine"  # why a selected run is left out


@dataclass(frozen=True)
class Answer:
    """A report's answer for a workload: `headline` has the best setting and how sure that is, `beside` the rest."""

    headline: str
    beside: str = ""


@dataclass
class Report:
    """The content of the page, Markdown, CSV and JSON."""

    title: str
    source: str
    axes: Sequence[str]
    metric: str
    tasks: Sequence[Task]
    runs: Sequence[Run]
    with_missed: bool = False
    selectors: Sequence[str] = ()  # which runs: sweeps, experiments, ids, names or folders
    with_neighbours: bool = False
    within: Sequence[str] = ()  # limits of time (--within)
    over: Mapping[str, str] = field(default_factory=dict)  # the base of scores (--over)
    left_out: list[tuple[Run, str]] = field(default_factory=list)  # selected runs that are in no setting, and why
    answers: list[Answer] = field(default_factory=list)  # one a workload, unless a search answers
    searched: Sequence[Mapping[str, Any]] = ()  # the answers of the runs' searches
    details: list[str] = field(default_factory=list)  # sentences that belong beside the tables
    warnings: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[ReportedFigure] = field(default_factory=list)
    comparisons: list[tuple[str, Comparison]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    @property
    def answer(self) -> str:
        return " ".join([*self.search_words, *self.answer_sentences])

    @property
    def search_words(self) -> list[str]:
        return [each["words"] for each in self.searched]

    @property
    def answer_sentences(self) -> list[str]:
        return [text for each in self.answers for text in (each.headline, each.beside) if text]

    def best(self, task: Task) -> Best | None:
        """The best setting of a workload; None if its settings cannot be ranked."""
        bests = (verdict.best for verdict in self.verdicts if verdict.task == task.title and verdict.stack is None)
        return next(bests, None)

    def short(self, text: str) -> str:
        """A title, caption or warning, without the workload at its start if the report has only one."""
        if len(self.tasks) != 1 or not text.startswith(self.tasks[0].title):
            return text
        rest = text.removeprefix(self.tasks[0].title).lstrip(":, ")
        is_name = "=" in rest.partition(" ")[0]  # A setting's name stays as it is.
        return rest if is_name else f"{rest[:1].upper()}{rest[1:]}" or "Settings"

    @property
    def rankings(self) -> list[Table]:
        """The tables that come first: the settings of each workload, ranked."""
        return [table for table in self.tables if table.kind == KIND]

    @property
    def first_plots(self) -> list[Plot]:
        """The pictures that come before the tables: those of all workloads, if there are several."""
        return [plot for plot in self.plots if not plot.about] if len(self.tasks) > 1 else []

    @property
    def others(self) -> list[Table]:
        """The tables of the details, without an empty table of runs that do not count."""
        return [table for table in self.tables if table.kind != KIND and (table.rows or table.kind != "excluded")]

    def plain(self) -> dict[str, Any]:
        """The report for JSON."""
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
            "headlines": [*self.search_words, *(each.headline for each in self.answers)],
            "searched": list(self.searched),
            "spent_usd": {task.title: spent(task) for task in self.tasks},
            "warnings": self.warnings,
            "tables": [plain.table(table) for table in self.tables],
            "reached": [plain.share(task.title, setting) for task in self.tasks for setting in task.settings],
            "figures": [plain.figure(figure) for figure in self.figures],
            "comparisons": plain.comparisons(self.comparisons, self.tasks, self.metric),
            "best": [verdict.plain() for verdict in self.verdicts],
            "sentences": [sentence.plain() for sentence in self.sentences],
            "excluded": [
                plain.run(run, task.title) | {"setting": name, "why": why}
                for task in self.tasks
                for run, name, why in task.excluded
            ],
            "left_out": [plain.run_id(run) | {"why": why} for run, why in self.left_out],
            "runs": [
                plain.run(run, task.title) | {"setting": dict(setting.labels)}
                for task in self.tasks
                for setting in task.settings
                for run in setting.runs
            ],
        }  # fmt: skip


def make(
    store: Runs, selectors: Sequence[str], runs: Sequence[Run], by: Sequence[str] = (), metric: str | None = None,
    with_missed: bool = False, progress: Callable[[], None] = lambda: None,
    searched: Sequence[Mapping[str, Any]] = (),
) -> Report:  # fmt: skip
    """The report of these runs; `searched` are the answers of their searches, as in search.json.

    Raises ValueError if they cannot be reported, and what `store` raises. Without a finished run, only searches can be.
    """
    newest = newest_attempts(runs)
    newest_ids = {run.id for run in newest}
    superseded, runs = [(run, RUN_AGAIN) for run in runs if run.id not in newest_ids], newest
    unfinished = none_finished(runs, selectors)
    if unfinished and not searched:
        raise ValueError(unfinished)
    if metric and not any(metric in run.metrics for run in runs):
        allowed = sorted({key for run in runs for key in run.metrics if not key.startswith(quantities.SYSTEM)})
        raise ValueError(f"--metric {metric}: no run has it. {near_or_all(metric, allowed)}")
    values = axis_values.Values(store, runs)
    axes = axis_values.with_pairs(list(by) or axis_values.likely_axes(runs), runs)
    values.check(axes, runs)
    tasks = grouping.group(runs, axes, values, with_missed)
    title, metric = " ".join(selectors), metric or estimates.main_metric(tasks)
    report = Report(title, store.source, axes, metric, tasks, runs, with_missed, selectors, left_out=superseded)
    report.searched, report.warnings = searched, [*caveats(tasks, metric, with_missed), *filter(None, [unfinished])]
    if superseded:
        attempts = counted(len(superseded), "failed attempt")
        report.warnings.append(f"left out: {attempts} of jobs that their sweep ran again")
    for task in tasks:
        report.warnings += confounding.warnings(task, axes, store, values, progress)
        _add_workload(report, task, store)
    if speed_ups := setting_tables.speed_up_table(tasks, report.metric):
        report.tables.append(speed_ups)
    table, sentence = setting_tables.excluded_table(tasks, len(runs))
    report.tables += [*tables_over_all(store, tasks, report.metric), table]
    report.sentences.append(sentence)
    for task in tasks:
        _add_answer(report, task)
    about_stacks = {task.title: _about_stacks(report, task) for task in tasks}
    bests = [report.best(task) for task in tasks]
    report.plots = list(Plotter(store, tasks, progress, about_stacks, report.metric, bests).plots())
    if not any(plot.name == roofline_chart.NAME for plot in report.plots):  # Otherwise its caption says so.
        report.warnings += roofline_chart.absent(tasks)
    return report


def add_asked(report: Report, within: Sequence[str], over: Mapping[str, str]) -> None:
    """Add the tables of --within and --over, before the table of runs that do not count.

    Raises ValueError for a limit without a unit, and for a base without a setting.
    """
    within = list(dict.fromkeys(within))
    report.within, report.over = within, over
    tables = [within_table(report.tasks, within)] if within else []
    tables += [over_table(report.tasks, report.metric, over)] if over else []
    place = next(place for place, table in enumerate(report.tables) if table.kind == "excluded")
    report.tables[place:place] = tables


def _add_workload(report: Report, task: Task, store: Runs) -> None:
    tables = (setting_tables.settings_table, metrics_table, limits_table, utilization_table)
    for result in (make_table(task, report.axes) for make_table in tables):
        if result:
            report.tables.append(result[0])
            report.figures += result[1]
    possible = possible_table(task, report.axes, store)
    report.tables += [possible] if possible else []
    pairs = compare(task, report.metric)
    report.comparisons += [(task.title, pair) for pair in pairs]
    report.warnings += unpaired(task, pairs, report.metric)
    if pairs:
        table, sentences = comparison_table(task, report.metric, pairs)
        report.tables.append(table)
        report.sentences += sentences
    best = best_of(task.settings, pairs, report.metric)
    report.verdicts += [Verdict(task.title, best)] if best else []
    if any(is_stack(axis) for axis in report.axes):
        stacks = best_stacks(task, report.metric, pairs)
        report.verdicts += [Verdict(task.title, stack.best, stack) for stack in stacks]
        of_stacks, sentences = stack_sentences.stack_tables(task, report.metric, stacks)
        report.tables += of_stacks
        report.sentences += sentences
    if rows := missing(task, report.axes, report.metric, store):
        report.tables.append(stack_sentences.missing_table(task, report.axes, rows))


def _add_answer(report: Report, task: Task) -> None:
    pairs = [pair for title, pair in report.comparisons if title == task.title]
    chosen = report.best(task)
    lead = f"For {task.title.rpartition(' to ')[0] or task.title}, " if len(report.tasks) > 1 else ""
    if not task.sweeps <= {each["sweep"] for each in report.searched}:  # Otherwise a search answers.
        headlines, more = answer(task, report.metric, chosen, lead), beside(task, report.metric, chosen, pairs)
        report.answers.append(Answer(*(" ".join(sentence.text for sentence in part) for part in (headlines, more))))
        report.sentences += [*headlines, *more]
    ranking = ranking_table(task, report.axes, report.metric, chosen)
    report.tables += [ranking] if ranking else []
    if chosen is not None and (trained := goodput(task.title, chosen.leader)):
        report.sentences.append(trained)
        report.details.append(trained.text)


def _about_stacks(report: Report, task: Task) -> list[str]:
    """The sentences on the stacks of a workload."""
    return [table.note for table in report.tables if (table.kind, table.about) == ("stacks", task.title)]
