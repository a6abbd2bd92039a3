"""The sentences of a report's tables: each is a template, filled with the numbers and names of its record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracking.analysis.compare import ALPHA, Best, Comparison, Factors, Setting
from tracking.analysis.report.sentences.templates import MOST_NAMED, Sentence
from tracking.analysis.statistics import Needed
from tracking.base.number_text import counted, significant
from tracking.base.quantities import unit

CONFIDENCE = 1 - ALPHA
PAIRED = ", paired by seed"


def names_of(settings: Sequence[Setting]) -> dict[str, Any]:
    """The names of the settings that the best cannot be told apart from, as a list and in words."""
    names = [setting.name for setting in settings]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return {"tied": names, "named": ", ".join(names[:MOST_NAMED]) + more}


def interval(best: Best, plural: str) -> dict[str, Any]:
    """The bounds of the leader's factor over the next setting: numbers (None: unbounded) and words."""
    if best.bounds is None:
        return {"low": None, "high": None, "interval": ""}
    low, high = best.bounds
    if math.isfinite(high):
        words = f"{significant(low)} to {significant(high)}" if low else f"up to {significant(high)}"
    else:
        words = f"{significant(low)} or more" if low else "any"
    at_once = f" for all {best.num_tested} {plural} at once" if best.num_tested > 2 else ""
    values = {"low": low, "high": high if math.isfinite(high) else None, "confidence": CONFIDENCE}
    return values | {
        "num_tested": best.num_tested,
        "interval": f" ({words}, with {CONFIDENCE:.0%} confidence{at_once})",
    }


def factor(pair: Comparison) -> dict[str, Any]:
    """The pair's factor, and `at least ` before it if it is a lower bound."""
    return {"factor": pair.factor, "at_least": "at least " if pair.at_least else ""}


def verdict(task: str, metric: str, pair: Comparison) -> Sentence:
    """Whether two settings can be told apart, and if so by what factor."""
    values: dict[str, Any] = {"better": pair.better.name, "worse": pair.worse.name}
    values |= {"paired": PAIRED if pair.paired else ""}
    if pair.searched:
        return Sentence("of a search", task, values)
    if pair.adjusted is None:
        few = [setting.name for setting in (pair.better, pair.worse) if setting.measured(metric).n < 2]
        return Sentence("one run", task, values | {"few": " and of ".join(few)})
    if pair.told_apart and pair.won is not None:
        return Sentence("told apart by pairs", task, values | {"won": pair.won})
    if pair.told_apart and math.isinf(pair.factor):  # Means are 0 or less.
        return Sentence("told apart without a factor", task, values)
    if pair.told_apart:
        return Sentence("told apart", task, values | factor(pair))
    return Sentence("not told apart", task, values)


def more_often(task: str, metric: str, pair: Comparison) -> Sentence | None:
    """Which of two settings reaches the target significantly more often; None if neither does."""
    if pair.often is None or pair.more_often is None:
        return None
    counts = pair.often.counts
    ends = math.isfinite(counts.horizon)
    numbers: dict[str, Any] = vars(counts) | {"horizon": counts.horizon if ends else None}
    seldom = pair.worse if pair.often.first else pair.better
    values = {"better": pair.better.name, "worse": pair.worse.name, **numbers}
    values |= {"by": f" by {significant(counts.horizon, 4)}{unit(metric)}" if ends else ""}
    return Sentence("more often", task, values | {"often": pair.more_often.name, "seldom": seldom.name})


def factors(task: str, parts: Factors) -> Sentence:
    """The sentence on the two parts of a time: each factor, and its p-value."""
    values: dict[str, Any] = {"better": parts.pair.better.name, "worse": parts.pair.worse.name}
    for name, factor in (("rate", parts.rate), ("evaluations", parts.evaluations)):
        words = "one run a side" if factor.adjusted is None else f"p = {factor.adjusted:.2g}"
        values |= {name: factor.value, f"p_{name}": factor.adjusted, f"of_{name}": words}
    return Sentence("factors", task, values)


def runs_that_would_tell(task: str, metric: str, pair: Comparison, needed: Needed) -> Sentence:
    values = {"better": pair.better.name, "worse": pair.worse.name, **runs_needed(metric, pair, needed)}
    return Sentence("runs that would tell", task, values)


def runs_needed(metric: str, pair: Comparison, needed: Needed) -> dict[str, Any]:
    """How many runs would tell: numbers for both sides, and words for the sides that need more."""
    sides = ((pair.better, needed.first), (pair.worse, needed.second))
    more = [(setting.name, number - setting.measured(metric).n) for setting, number in sides]
    growing = [(name, number) for name, number in more if number > 0]
    most = needed.most or (None, None)
    upper = "or far more" if needed.most is None else f"up to {max(needed.most):,}"
    words = f"{max(needed.first, needed.second):,} runs a side ({upper})"
    if len(growing) == 1:
        name, number = growing[0]
        at_most = "or far more" if needed.most is None else f"{name} having up to {max(needed.most):,}"
        words = f"{counted(number, 'more run')} of {name} ({at_most})"
    numbers = {"num_better": needed.first, "num_worse": needed.second, "most_better": most[0], "most_worse": most[1]}
    return {**numbers, "num_more": sum(number for _, number in growing), "runs": words}


def lead(task: str, best: Best) -> Sentence:
    """Whether the lead of the best stack is more than the noise."""
    assert best.next is not None
    values: dict[str, Any] = {"better": best.next.better.name, "worse": best.next.worse.name}
    if best.p is None:
        return Sentence("lead of a search" if best.searched else "lead of one run", task, values)
    values |= {"p_corrected": best.p, "num_stacks": best.num_tested, "paired": PAIRED if best.paired else ""}
    return Sentence("lead not told apart" if best.tied else "lead told apart", task, values)


def excluded(num_excluded: int, num_runs: int) -> Sentence:
    return Sentence("excluded", "", {"num_excluded": num_excluded, "num_runs": num_runs})
