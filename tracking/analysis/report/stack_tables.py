"""The tables of a report on stacks: the best stack, and the missing combinations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tracking.analysis.compare import UNTIL_CENSORED, BestStack, Task, estimate
from tracking.analysis.report import sentences, stack_sentences
from tracking.analysis.report.sentences import Sentence
from tracking.analysis.report.setting_tables import shown_share
from tracking.analysis.results import Table


def stack_tables(task: Task, metric: str, stacks: Sequence[BestStack]) -> tuple[list[Table], list[Sentence]]:
    """A table for each value of the other axes, with the best stack, and its sentences as the note."""
    tables, all_sentences = [], []
    for stack in stacks:
        lead, words = sentences.lead(task.title, stack.best), stack_sentences.verdict(task.title, metric, stack)
        tables.append(_best_and_next(task, metric, stack, lead, "".join(sentence.text for sentence in words)))
        all_sentences += [lead, *words]
    return tables, all_sentences


def _best_and_next(task: Task, metric: str, stack: BestStack, lead: Sentence, note: str) -> Table:
    shares = ["reached"] if metric in UNTIL_CENSORED else []
    rows = []
    for role, setting in (("best mean", stack.best.leader), ("next", stack.runner_up)):
        mean = estimate(setting.measured(metric))
        cells = [role, setting.name, mean.text() if mean else "", f"{setting.measured(metric).n}"]
        rows.append([*cells, *(shown_share(setting) for _ in shares)])
    ahead = f"{100 * (stack.next.factor - 1):.1f} %" if math.isfinite(stack.next.factor) else ""
    ahead = f"≥ {ahead}" if stack.next.at_least else ahead
    rows.append(["lead", ahead, lead.text, "", *("" for _ in shares)])
    columns = dict.fromkeys(["", "stack", metric, "n", *shares], "")
    title = f"{task.title}{stack_sentences.among(stack.among)}: best stack"
    return Table(title, columns, rows, note, "stacks", task.title)


def missing_table(task: Task, axes: Sequence[str], rows: Sequence[tuple[Mapping[str, str], str]]) -> Table:
    """The combinations without a counted run, and why."""
    cells = [[*labels.values(), why] for labels, why in rows]
    return Table(
        f"{task.title}: missing combinations",
        dict.fromkeys([*axes, "why"], ""),
        cells,
        "These combinations have no counted run: they are in no mean, and gaps in the figure.",
        "missing",
        task.title,
    )
