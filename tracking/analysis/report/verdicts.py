"""Comparisons for JSON: each pair of settings, and the best of several."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracking.analysis.compare import ALPHA, Best, BestStack, Comparison, Factors, runs_that_would_tell
from tracking.analysis.report import sentences
from tracking.analysis.statistics import Needed


@dataclass(frozen=True)
class Verdict:
    """The best setting of a workload, or the best stack among the settings whose other axes are `stack.among`."""

    task: str
    best: Best
    stack: BestStack | None = None

    def plain(self) -> dict[str, Any]:
        best, following = self.best, self.best.next
        low, high = best.bounds or (None, None)
        saved = self.stack.saved_usd if self.stack else None
        return {
            "workload": self.task,
            "among": dict(self.stack.among) if self.stack else None,
            "leader": dict(best.leader.labels),
            "candidates": [dict(setting.labels) for setting in best.candidates],
            "num_tested": best.num_tested,
            "p_corrected": best.p,
            "low": low,
            "high": None if high is None or math.isinf(high) else high,
            "next": _other(best, following),
            "undecided": _other(best, best.undecided),
            "factor": None if following is None or math.isinf(following.factor) else following.factor,
            "factor_bound": "≥" if following is not None and following.at_least else "",
            "saved_usd": saved and {"mean": saved.mean, "standard_error": saved.error, "bound": saved.bound},
            "runs_that_would_tell": needed(self.stack.needed if self.stack else None),
        }


def _other(best: Best, pair: Comparison | None) -> dict[str, str] | None:
    """The labels of the other setting of a leader's pair; None without a pair."""
    return None if pair is None else dict(pair.other_than(best.leader).labels)


def comparison(task: str, metric: str, pair: Comparison, num_tests: int) -> dict[str, Any]:
    """The record of a pair; `num_tests` is the number of the workload's pairs that have a p-value."""
    would_tell = None if pair.told_apart else runs_that_would_tell(pair, metric, ALPHA / (2 * max(1, num_tests)))
    return {
        "workload": task,
        "metric": metric,
        "better": dict(pair.better.labels),
        "worse": dict(pair.worse.labels),
        "factor": None if math.isinf(pair.factor) else pair.factor,
        "factor_bound": "≥" if pair.at_least else "",
        "paired": pair.paired,
        "p": pair.p,
        "p_corrected": pair.adjusted,
        "told_apart": pair.told_apart,
        "reaches_more_often": None if pair.often is None else _often(pair),
        "runs_that_would_tell": needed(would_tell),
        "so": sentences.verdict(task, metric, pair).text,
    }


def parts(of_time: Factors | None) -> Mapping[str, Any] | None:
    """The two parts of a time, evaluations and rate: the factors by which the better setting has more."""
    if of_time is None:
        return None
    rate, evaluations = of_time.rate, of_time.evaluations
    values = {"rate": rate.value, "p_rate": rate.adjusted}
    return values | {"evaluations": evaluations.value, "p_evaluations": evaluations.adjusted}


def needed(runs: Needed | None) -> Mapping[str, Any] | None:
    """How many runs of each side would tell; `most` is null above the largest number that is tried."""
    if runs is None:
        return None
    most = runs.most or (None, None)
    return {"better": runs.first, "worse": runs.second, "most_better": most[0], "most_worse": most[1]}


def _often(pair: Comparison) -> dict[str, Any]:
    """The setting that reaches the target significantly more often, else null; and the counts."""
    assert pair.often
    horizon = pair.often.counts.horizon
    counts = vars(pair.often.counts) | {"horizon": horizon if math.isfinite(horizon) else None}
    numbers = {"p": pair.often.p, "p_corrected": pair.often.adjusted, **counts}
    return {"setting": None if pair.more_often is None else dict(pair.more_often.labels), **numbers}
