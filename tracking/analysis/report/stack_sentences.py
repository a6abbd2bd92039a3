"""A report's sentences and tables on stacks: the best one, what its lead saves, and the missing combinations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracking.analysis.compare import UNTIL_CENSORED, BestStack, Setting, Task, estimate, estimates
from tracking.analysis.report import sentences
from tracking.analysis.report.pictures import COST
from tracking.analysis.report.sentences import Sentence
from tracking.analysis.report.setting_tables import shown_share
from tracking.analysis.results import Table
from tracking.analysis.statistics import POWER

OF_MISSES = "runs that did not reach the target have no spread"
OF_EQUALS = "the means are equal, or nobody makes so many"


def verdict(task: str, metric: str, stack: BestStack) -> list[Sentence]:
    """The sentences on the best stack and what it saves; without a best one, how many runs would decide."""
    best = stack.best
    values: dict[str, Any] = {"workload": task, "among": among(stack.among), **_names(stack)}
    if best.searched:
        searched = sentences.names_of([_renamed(setting, stack) for setting in best.searched])
        return [Sentence("stack of a search", task, values | searched)]
    if best.p is None:
        few = [_own_name(setting, stack) for setting in best.settings if setting.measured(metric).n < 2]
        return [Sentence("stack of one run", task, values | {"few": " and of ".join(few)})]
    next_is_told_apart = best.undecided is not None and best.undecided is not stack.next  # Its factor is no noise.
    without = math.isinf(stack.next.factor) or stack.next.better is not best.leader or next_is_told_apart
    ending = " without a factor" if without else ""
    if not without:
        values |= {**sentences.factor(stack.next), **sentences.interval(best, "stacks")}
    if not best.tied:
        return [Sentence(f"best stack{ending}", task, values), *_worth(task, stack)]
    tied = sentences.names_of([_renamed(setting, stack) for setting in best.tied])
    return [Sentence(f"no best stack{ending}", task, values | tied), _what_decides(task, metric, stack)]


def among(labels: Mapping[str, str]) -> str:
    """The axes that compared stacks share, in words; "" without any."""
    return "".join(f", {axis}={value}" for axis, value in labels.items())


def _renamed(setting: Setting, stack: BestStack) -> Setting:
    """The setting with the labels of its stack alone."""
    labels = {axis: value for axis, value in setting.labels.items() if axis not in stack.among}
    return replace(setting, labels=labels)


def _own_name(setting: Setting, stack: BestStack) -> str:
    return _renamed(setting, stack).name


def _names(stack: BestStack, other: Setting | None = None) -> dict[str, Any]:
    """The best and `other` (default: the next), by their own axes; and `pair`, the names of the whole settings."""
    sides: Sequence[Setting] = (stack.best.leader, other or stack.runner_up)
    better, worse = (_own_name(setting, stack) for setting in sides)
    return {"better": better, "worse": worse, "pair": [setting.name for setting in sides]}


def _worth(task: str, stack: BestStack) -> list[Sentence]:
    """What the best stack saves over the next; nothing without prices."""
    saved = stack.saved_usd
    if saved is None:
        return []
    usd = [_usd(setting) for setting in (stack.best.leader, stack.runner_up)]
    cheaper = saved.mean >= 0
    shown = saved if cheaper else replace(saved, mean=-saved.mean, bound=estimates.OPPOSITE[saved.bound])
    values = {
        **_names(stack), "mean": shown.mean, "standard_error": shown.error, "difference": shown.text(),
        "better_usd": usd[0], "worse_usd": usd[1],
    }  # fmt: skip
    return [Sentence("best stack saves" if cheaper else "best stack costs", task, values)]


def _usd(setting: Setting) -> str:
    cost = estimate(setting.measured(COST))
    assert cost is not None
    return replace(cost, olympic=None, invalid=False).text()


def _what_decides(task: str, metric: str, stack: BestStack) -> Sentence:
    pair = stack.best.undecided
    assert pair is not None
    names = _names(stack, pair.other_than(stack.best.leader))
    if stack.needed is not None:
        values = sentences.runs_needed(metric, pair, stack.needed)
        return Sentence("runs that would decide", task, names | values | {"power": POWER})
    missed = any(setting.measured(metric).num_short for setting in (pair.better, pair.worse))
    return Sentence("decides when", task, names | {"why": OF_MISSES if missed else OF_EQUALS})


def stack_tables(task: Task, metric: str, stacks: Sequence[BestStack]) -> tuple[list[Table], list[Sentence]]:
    """A table for each value of the other axes, with the best stack, and its sentences as the note."""
    tables, all_sentences = [], []
    for stack in stacks:
        lead, words = sentences.lead(task.title, stack.best), verdict(task.title, metric, stack)
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
    title = f"{task.title}{among(stack.among)}: best stack"
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
