"""The sentences of a report, each made from a record: a template and the numbers and names that it is filled with.

A template holds no digits of its own, so that every number in a sentence is a value of its record, and can be
recomputed without reading English.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.compare import UNTIL_GIVEN_UP, Comparison, Setting, estimate, unit

MOST_NAMED = 3  # settings of which a sentence says the names
LEADER = "{workload}: {metric} is {figure} (n = {n}{reached}) with {setting}, "
GAP = "more than the noise (p = {p_corrected:.2g}, corrected for the choice among {num_stacks} stacks)"
NO_CONCLUSION = (
    "{workload}{among}: no conclusion is possible about the best stack. The best mean is of {better} and the worst of "
    "{worse}, by a factor of "
)
# Right for one run, too.
OTHERS = (
    "Counted as not having reached the target: {num_given_up}; stopped before it: {num_stopped}; counted nowhere: "
    "{num_excluded}."
)
TEMPLATES = {
    "no run counts": "{workload}: no run counts that has {metric}.",
    "only setting": LEADER + "the only setting that has it.",
    "tied": LEADER + "the best mean, but it cannot be told apart from {named}.",
    "tied with many": LEADER + "the best mean, but it cannot be told apart from {named} and {more} more.",
    "better than the other": LEADER + "better than the only other by a factor of {factor:.3g}.",
    "better than all": LEADER + "better than all {num_others} others by a factor of {factor:.3g} at least.",
    "ahead of the other": LEADER + "and it is ahead of the only other.",
    "ahead of all": LEADER + "and it is ahead of all {num_others} others.",
    "cost": "The lowest mean cost to accuracy is {figure} (n = {n}{reached}), with {setting}. "
    "Runs in every mean: {num_averaged} of {num_runs}, for {spent_usd:,.4g} USD together on the clock. " + OTHERS,
    "without cost": "Runs in every mean: {num_averaged} of {num_runs}. " + OTHERS,
    "told apart": "{better} is better by a factor of {factor:.3g}",
    "told apart without a factor": "{better} is better",
    "not told apart": "cannot be told apart",
    "one run": "cannot be told apart: one run of {few}; repeat it with other seeds",
    "runs that would tell": "; {num_runs} runs a side would tell",
    "more often": "; {often} reaches the target more often: {reached} of {n} runs had when the first of {seldom} was "
    "given up, and {other_reached} of {m} of these ever did",
    "best more often": "{setting} reaches the target more often than {named}.",
    "gap told apart": GAP,
    "gap not told apart": "not " + GAP,
    "gap of one run": "not more than the noise (one run a side)",
    "best stack": "{workload}{among}: the best stack is {better} and the worst {worse}, by a factor of "
    "{factor:.3g}{interval}.",
    "no best stack": NO_CONCLUSION + "{factor:.3g}{interval}, which may be noise.",
    "stack of one run": NO_CONCLUSION + "{factor:.3g}, but there is one run of {few}: repeat it with other seeds.",
    "best stack saves": " {better} saves {difference} USD a training to the target ({better_usd} and not {worse_usd}).",
    "best stack costs": " {better} costs {difference} USD more a training to the target ({better_usd} and not "
    "{worse_usd}).",
    "runs that would decide": " {num_runs} runs a side would decide in {power:.0%} of cases, if the two truly differ "
    "as much: {num_more} more in all.",
    "decides when": " How many runs would decide is not known: {why}.",
    "excluded": "Runs not in every mean: {num_excluded} of {num_runs}",
}


@dataclass(frozen=True)
class Sentence:
    """What a sentence says of which workload; `kind` is a key of TEMPLATES."""

    kind: str
    task: str
    values: Mapping[str, Any]

    @property
    def text(self) -> str:
        return TEMPLATES[self.kind].format(**self.values)

    def plain(self) -> dict[str, Any]:
        """The record as JSON can hold it, with its template and its text."""
        about = {"kind": self.kind, "workload": self.task, "values": dict(self.values)}
        return about | {"template": TEMPLATES[self.kind], "text": self.text}


def no_run_counts(task: str, metric: str) -> Sentence:
    return Sentence("no run counts", task, {"workload": task, "metric": metric})


def leader(task: str, metric: str, setting: Setting, pairs: Sequence[Comparison]) -> Sentence:
    """What is best and how sure that is; `pairs` are all of this setting."""
    values = {"workload": task, "metric": metric, "setting": setting.name, **numbers(setting, metric)}
    tied = [
        pair.worse.name if pair.better == setting else pair.better.name
        for pair in pairs
        if not (pair.told_apart and pair.better == setting)
    ]
    if not pairs:
        return Sentence("only setting", task, values)
    if tied:
        values |= {"tied": tied, "named": ", ".join(tied[:MOST_NAMED])}
        if len(tied) > MOST_NAMED:
            return Sentence("tied with many", task, values | {"more": len(tied) - MOST_NAMED})
        return Sentence("tied", task, values)
    values |= {"num_others": len(pairs)}
    if any(math.isinf(pair.factor) for pair in pairs):
        return Sentence("ahead of all" if len(pairs) > 1 else "ahead of the other", task, values)
    values |= {"factor": min(pair.factor for pair in pairs)}
    return Sentence("better than all" if len(pairs) > 1 else "better than the other", task, values)


def numbers(setting: Setting, metric: str) -> dict[str, Any]:
    """The numbers of a setting's mean; `figure`, which is how they are printed, with the unit; and how many reached
    their target."""
    average, share = estimate(setting.times(metric)), setting.reached
    assert average is not None
    return {
        "n": average.n,
        "mean": average.mean,
        "standard_error": average.error,
        "olympic_mean": average.olympic,
        "figure": average.text(unit=unit(metric)),
        "reached": f"; reached by {share.text}" if share and metric in UNTIL_GIVEN_UP else "",
    }


def verdict(task: str, metric: str, pair: Comparison) -> Sentence:
    """Whether two settings can be told apart, and if so by what factor."""
    values: dict[str, Any] = {"better": pair.better.name, "worse": pair.worse.name}
    if pair.adjusted is None:
        few = [setting.name for setting in (pair.better, pair.worse) if setting.times(metric).n < 2]
        return Sentence("one run", task, values | {"few": " and of ".join(few)})
    if pair.told_apart and math.isinf(pair.factor):  # Means are 0 or less.
        return Sentence("told apart without a factor", task, values)
    if pair.told_apart:
        return Sentence("told apart", task, values | {"factor": pair.factor})
    return Sentence("not told apart", task, values)


def more_often(task: str, pair: Comparison) -> Sentence | None:
    """Which of two settings reaches the target more often; None where that is not sure."""
    if pair.often is None or pair.more_often is None:
        return None
    seldom = pair.worse if pair.often.first else pair.better
    values = {"better": pair.better.name, "worse": pair.worse.name, **vars(pair.often.early)}
    return Sentence("more often", task, values | {"often": pair.more_often.name, "seldom": seldom.name})


def best_more_often(task: str, setting: Setting, pairs: Sequence[Comparison]) -> Sentence | None:
    """Than which others the best setting reaches the target more often, of all its pairs."""
    others = [
        (pair.worse if pair.better == setting else pair.better).name for pair in pairs if pair.more_often == setting
    ]
    values = {"setting": setting.name, "than": others, "named": ", ".join(others)}
    return Sentence("best more often", task, values) if others else None


def runs_that_would_tell(task: str, pair: Comparison, num_runs: int) -> Sentence:
    values = {"better": pair.better.name, "worse": pair.worse.name, "num_runs": num_runs}
    return Sentence("runs that would tell", task, values)


def gap(task: str, pair: Comparison, num_stacks: int) -> Sentence:
    """Whether the gap between the best and the worst stack is more than the noise."""
    values: dict[str, Any] = {"better": pair.better.name, "worse": pair.worse.name}
    if pair.adjusted is None:
        return Sentence("gap of one run", task, values)
    values |= {"p_corrected": pair.adjusted, "num_stacks": num_stacks}
    return Sentence("gap told apart" if pair.told_apart else "gap not told apart", task, values)


def excluded(num_excluded: int, num_runs: int) -> Sentence:
    return Sentence("excluded", "", {"num_excluded": num_excluded, "num_runs": num_runs})
