"""The sentences of a report, each made from a record: a template and the numbers and names that it is filled with.

A template holds no digits of its own, so that every number in a sentence is a value of its record, and can be
recomputed without reading English.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.analysis.compare import ALPHA, UNTIL_CENSORED, Best, Comparison, Factors, Setting, estimate
from tracking.analysis.statistics import Needed, counted
from tracking.base.quantities import unit, why_unknown

MOST_NAMED = 3  # settings of which a sentence says the names
CONFIDENCE = 1 - ALPHA
LEADER = "{workload}: {metric} is {figure} (n = {n}{reached}) with {setting}, "
PAIRED = ", paired by seed"
LEAD = "more than the noise (p = {p_corrected:.2g}, corrected for the choice among {num_stacks} stacks{paired})"
NO_CONCLUSION = "{workload}{among}: no conclusion is possible about the best stack. The best mean is of {better}"
# Right for one run, too.
OTHERS = (
    "Counted as not having reached the target: {num_given_up}; stopped before it: {num_stopped}; counted nowhere: "
    "{num_excluded}."
)
TEMPLATES = {
    "no run counts": "{workload}: no run counts that has {metric}.",
    "no direction": "{workload}: by {metric} no setting is the best: {why}.",
    "only setting": LEADER + "the only setting that has it.",
    "tied": LEADER + "the best mean, but it cannot be told apart from {named}.",
    "better than the other": LEADER + "better than the only other by a factor of {factor:.3g}{interval}.",
    "better than all": LEADER + "better than all {num_others} others, than the next by a factor of "
    "{factor:.3g}{interval}.",
    "ahead of the other": LEADER + "and it is ahead of the only other.",
    "ahead of all": LEADER + "and it is ahead of all {num_others} others.",
    "cost": "The lowest mean cost to accuracy is {figure} (n = {n}{reached}), with {setting}. "
    "Runs in every mean: {num_averaged} of {num_runs}, for {spent_usd:,.4g} USD together on the clock. " + OTHERS,
    "without cost": "Runs in every mean: {num_averaged} of {num_runs}. " + OTHERS,
    "limit": "{setting} is limited by {cause} ({share:.0%} of its time); try first: {next}.",
    "goodput": "Of the time from submission to the end, {trained:.0%} was training ({setting}).",
    "told apart": "{better} is better by a factor of {factor:.3g}{paired}",
    "told apart without a factor": "{better} is better{paired}",
    "told apart by pairs": "{better} is better: its run is the sooner one in {won:.0%} of pairs",
    "not told apart": "cannot be told apart{paired}",
    "one run": "cannot be told apart: one run of {few}; repeat it with other seeds",
    "factors": "; {better} has {rate:.3g} times the rate ({of_rate}) and takes {evaluations:.3g} times the evaluations "
    "({of_evaluations})",
    "runs that would tell": "; {runs} would tell",
    "more often": "; {often} reaches the target more often{by}: {reached} of {n} runs, and {other_reached} of {m} of "
    "{seldom}",
    "best more often": "{setting} reaches the target more often than {named}.",
    "lead told apart": LEAD,
    "lead not told apart": "not " + LEAD,
    "lead of one run": "not more than the noise (one run a side)",
    "best stack": "{workload}{among}: the best stack is {better}, ahead of the next, {worse}, by a factor of "
    "{factor:.3g}{interval}.",
    "best stack without a factor": "{workload}{among}: the best stack is {better}, ahead of the next, {worse}.",
    "no best stack": NO_CONCLUSION + ", which cannot be told apart from {named}. Its factor over {worse} is "
    "{factor:.3g}{interval}, which may be noise.",
    "no best stack without a factor": NO_CONCLUSION + ", which cannot be told apart from {named}.",
    "stack of one run": NO_CONCLUSION + ", but there is one run of {few}: repeat it with other seeds.",
    "best stack saves": " {better} saves {difference} USD a training to the target over {worse} ({better_usd} and not "
    "{worse_usd}).",
    "best stack costs": " {better} costs {difference} USD more a training to the target than {worse} ({better_usd} and "
    "not {worse_usd}).",
    "runs that would decide": " {runs} would tell {better} from {worse} in {power:.0%} of cases, if the two truly "
    "differ as much: {num_more} more in all.",
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


def no_direction(task: str, metric: str) -> Sentence:
    return Sentence("no direction", task, {"workload": task, "metric": metric, "why": why_unknown(metric)})


def leader(task: str, metric: str, best: Best) -> Sentence:
    """What is best and how sure that is."""
    values = {"workload": task, "metric": metric, "setting": best.leader.name, **numbers(best.leader, metric)}
    if best.next is None:
        return Sentence("only setting", task, values)
    if best.tied:
        return Sentence("tied", task, values | names_of(best.tied))
    num_others = len(best.settings) - 1
    values |= {"num_others": num_others}
    if math.isinf(best.next.factor):
        return Sentence("ahead of all" if num_others > 1 else "ahead of the other", task, values)
    values |= {"factor": best.next.factor, **interval(best, "settings")}
    return Sentence("better than all" if num_others > 1 else "better than the other", task, values)


def names_of(settings: Sequence[Setting]) -> dict[str, Any]:
    """The names of settings that the best cannot be told apart from, and the first of them in words."""
    names = [setting.name for setting in settings]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return {"tied": names, "named": ", ".join(names[:MOST_NAMED]) + more}


def interval(best: Best, what: str) -> dict[str, Any]:
    """The bounds of the leader's factor over the best of the others as numbers (None: there is none) and in words."""
    if best.bounds is None:
        return {"low": None, "high": None, "interval": ""}
    low, high = best.bounds
    if math.isfinite(high):
        words = f"{low:.3g} to {high:.3g}" if low else f"up to {high:.3g}"
    else:
        words = f"{low:.3g} or more" if low else "any"
    at_once = f" for all {best.num_tested} {what} at once" if best.num_tested > 2 else ""
    values = {"low": low, "high": high if math.isfinite(high) else None, "confidence": CONFIDENCE}
    return values | {
        "num_tested": best.num_tested,
        "interval": f" ({words}, with {CONFIDENCE:.0%} confidence{at_once})",
    }


def numbers(setting: Setting, metric: str) -> dict[str, Any]:
    """The numbers of a setting's mean; `figure`, which is how they are printed, with the unit; and how many reached
    their target."""
    average, share = estimate(setting.measured(metric)), setting.reached
    assert average is not None
    return {
        "n": average.n,
        "mean": average.mean,
        "standard_error": average.error,
        "olympic_mean": average.olympic,
        "figure": average.text(unit=unit(metric)),
        "reached": f"; reached by {share.text}" if share and metric in UNTIL_CENSORED else "",
    }


def verdict(task: str, metric: str, pair: Comparison) -> Sentence:
    """Whether two settings can be told apart, and if so by what factor."""
    values: dict[str, Any] = {"better": pair.better.name, "worse": pair.worse.name}
    values |= {"paired": PAIRED if pair.paired else ""}
    if pair.adjusted is None:
        few = [setting.name for setting in (pair.better, pair.worse) if setting.measured(metric).n < 2]
        return Sentence("one run", task, values | {"few": " and of ".join(few)})
    if pair.told_apart and pair.won is not None:
        return Sentence("told apart by pairs", task, values | {"won": pair.won})
    if pair.told_apart and math.isinf(pair.factor):  # Means are 0 or less.
        return Sentence("told apart without a factor", task, values)
    if pair.told_apart:
        return Sentence("told apart", task, values | {"factor": pair.factor})
    return Sentence("not told apart", task, values)


def more_often(task: str, metric: str, pair: Comparison) -> Sentence | None:
    """Which of two settings reaches the target more often; None where that is not sure."""
    if pair.often is None or pair.more_often is None:
        return None
    counts = pair.often.counts
    ends = math.isfinite(counts.horizon)
    numbers: dict[str, Any] = vars(counts) | {"horizon": counts.horizon if ends else None}
    seldom = pair.worse if pair.often.first else pair.better
    values = {"better": pair.better.name, "worse": pair.worse.name, **numbers}
    values |= {"by": f" by {counts.horizon:.4g}{unit(metric)}" if ends else ""}
    return Sentence("more often", task, values | {"often": pair.more_often.name, "seldom": seldom.name})


def best_more_often(task: str, setting: Setting, pairs: Sequence[Comparison]) -> Sentence | None:
    """Than which others the best setting reaches the target more often, of all its pairs."""
    others = [
        (pair.worse if pair.better == setting else pair.better).name for pair in pairs if pair.more_often == setting
    ]
    values = {"setting": setting.name, "than": others, "named": ", ".join(others)}
    return Sentence("best more often", task, values) if others else None


def factors(task: str, parts: Factors) -> Sentence:
    """By what factors the two parts of a time differ, and which of them is more than the noise."""
    values: dict[str, Any] = {"better": parts.pair.better.name, "worse": parts.pair.worse.name}
    for name, factor in (("rate", parts.rate), ("evaluations", parts.evaluations)):
        words = "one run a side" if factor.adjusted is None else f"p = {factor.adjusted:.2g}"
        values |= {name: factor.value, f"p_{name}": factor.adjusted, f"of_{name}": words}
    return Sentence("factors", task, values)


def runs_that_would_tell(task: str, metric: str, pair: Comparison, needed: Needed) -> Sentence:
    values = {"better": pair.better.name, "worse": pair.worse.name, **runs_needed(metric, pair, needed)}
    return Sentence("runs that would tell", task, values)


def runs_needed(metric: str, pair: Comparison, needed: Needed) -> dict[str, Any]:
    """The numbers of runs as numbers, and in words: of both sides, or of the one that has too few."""
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
        return Sentence("lead of one run", task, values)
    values |= {"p_corrected": best.p, "num_stacks": best.num_tested, "paired": PAIRED if best.paired else ""}
    return Sentence("lead not told apart" if best.tied else "lead told apart", task, values)


def excluded(num_excluded: int, num_runs: int) -> Sentence:
    return Sentence("excluded", "", {"num_excluded": num_excluded, "num_runs": num_runs})
