"""What a report answers: of each workload what is best, how sure that is, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracking.analysis.compare import Best, Comparison, Task, best, grouping
from tracking.analysis.report import sentences
from tracking.analysis.report.pictures import COST
from tracking.analysis.report.sentences import Sentence
from tracking.base import quantities


def answer(task: Task, metric: str, chosen: Best | None, comparisons: Sequence[Comparison]) -> list[Sentence]:
    """What is best and how sure that is; then what it costs, or what it rests on. `comparisons` are the workload's."""
    if chosen is None:
        there = [setting for setting in task.settings if setting.measured(metric).reached]
        unknown = any(setting.better(metric) is None for setting in there)
        return [(sentences.no_direction if unknown else sentences.no_run_counts)(task.title, metric)]
    pairs = [pair for pair in comparisons if chosen.leader in (pair.better, pair.worse)]
    oftener = sentences.best_more_often(task.title, chosen.leader, pairs)
    return [sentences.leader(task.title, metric, chosen), *([oftener] if oftener else []), _cost(task)]


def _cost(task: Task) -> Sentence:
    counts = {
        "num_averaged": len(task.runs),
        "num_runs": len(task.runs) + len(task.excluded),
        "num_given_up": sum(setting.num_missed for setting in task.settings),
        "num_stopped": sum(len(setting.stopped) for setting in task.settings),
        "num_excluded": sum(not grouping.is_censored(run) for run, _, _ in task.excluded),
    }
    cheapest = best(task, COST)
    if cheapest is None:
        return Sentence("without cost", task.title, counts)
    values = {**counts, **sentences.numbers(cheapest, COST), "setting": cheapest.name, "spent_usd": spent(task)}
    return Sentence("cost", task.title, values)


def spent(task: Task) -> float:
    """The cost in USD of all runs that are averaged; 0 without a price."""
    return math.fsum(run.metrics.get(quantities.COST_USD, 0.0) for run in task.runs)
