"""The tables of a report that is about stacks: the best and the worst, and the combinations that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracking.compare import UNTIL_GIVEN_UP, Comparison, Extremes, Task, estimate, extremes
from tracking.report import sentences, stack_sentences
from tracking.report.sentences import Sentence
from tracking.report.tables import shown_share
from tracking.results import Table


def stack_tables(task: Task, metric: str, pairs: Sequence[Comparison]) -> tuple[list[Table], list[Sentence]]:
    """Best and worst stack for each value of the other axes, with what is said of them as the table's note."""
    tables, said = [], []
    for widest in extremes(task, metric, pairs):
        gap, words = (
            sentences.gap(task.title, widest.pair, widest.num_stacks),
            stack_sentences.verdict(task.title, metric, widest),
        )
        tables.append(_best_and_worst(task, metric, widest, gap, "".join(sentence.text for sentence in words)))
        said += [gap, *words]
    return tables, said


def _best_and_worst(task: Task, metric: str, widest: Extremes, gap: Sentence, note: str) -> Table:
    shares = ["reached"] if metric in UNTIL_GIVEN_UP else []
    rows = []
    for role, setting in (("best", widest.pair.better), ("worst", widest.pair.worse)):
        mean = estimate(setting.times(metric))
        cells = [role, setting.name, mean.text() if mean else "", f"{setting.times(metric).n}"]
        rows.append([*cells, *(shown_share(setting) for _ in shares)])
    rows.append(["gap", f"{100 * (widest.pair.factor - 1):.1f} %", gap.text, "", *("" for _ in shares)])
    columns = dict.fromkeys(["", "stack", metric, "n", *shares], "")
    title = f"{task.title}{stack_sentences.among(widest.among)}: best and worst stack"
    return Table(title, columns, rows, note, "stacks", task.title)


def missing_table(task: Task, axes: Sequence[str], rows: Sequence[tuple[Mapping[str, str], str]]) -> Table:
    """Each combination that no run counts of, and why."""
    cells = [[*labels.values(), why] for labels, why in rows]
    return Table(
        f"{task.title}: missing combinations",
        dict.fromkeys([*axes, "why"], ""),
        cells,
        "Of these nothing is known: they are in no mean, and gaps in the figure.",
        "missing",
        task.title,
    )
