"""What a report answers: of each workload what is best, how sure that is, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracking.analysis.compare import Best, Comparison, Setting, Task, best, estimate, grouping
from tracking.analysis.report import sentences
from tracking.analysis.report.pictures import COST
from tracking.analysis.report.sentences import Sentence
from tracking.base import quantities
from tracking.measure.bottleneck import NAMES, Asked, first_try, limit


def answer(task: Task, metric: str, chosen: Best | None, comparisons: Sequence[Comparison]) -> list[Sentence]:
    """What is best, how sure that is, and what limits it; then what it costs, or what it rests on.

    `comparisons` are the workload's.
    """
    if chosen is None:
        there = [setting for setting in task.settings if setting.measured(metric).reached]
        unknown = any(setting.better(metric) is None for setting in there)
        return [(sentences.no_direction if unknown else sentences.no_run_counts)(task.title, metric)]
    pairs = [pair for pair in comparisons if chosen.leader in (pair.better, pair.worse)]
    oftener = sentences.best_more_often(task.title, chosen.leader, pairs)
    said = [sentences.leader(task.title, metric, chosen), oftener, _limit(task.title, chosen.leader), _cost(task)]
    return [sentence for sentence in [*said, _goodput(task.title, chosen.leader)] if sentence]


def _limit(title: str, setting: Setting) -> Sentence | None:
    """What limits the setting, and what to try first; None where no run says it."""
    means = {name: estimate(setting.measured(quantities.bottleneck(name))) for name in NAMES}
    shares = {name: mean.mean for name, mean in means.items() if mean}
    if not shares:
        return None
    cause = limit(shares)
    values = {"setting": setting.name, "cause": NAMES[cause], "share": shares.get(cause, 0.0)}
    return Sentence("limit", title, values | {"next": first_try(cause, Asked.of(setting.runs[0].params))})


def _goodput(title: str, setting: Setting) -> Sentence | None:
    """How much of the time from submission to the end trained."""
    trained = estimate(setting.measured(quantities.goodput("train")))
    return Sentence("goodput", title, {"setting": setting.name, "trained": trained.mean}) if trained else None


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
