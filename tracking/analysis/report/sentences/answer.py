"""A report's answer: the best setting of each workload, how sure that is, and what would make it sure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tracking.analysis.compare import (
    ALPHA,
    UNTIL_CENSORED,
    Best,
    Setting,
    Task,
    estimate,
    grouping,
    runs_that_would_tell,
)
from tracking.analysis.report.sentences import phrases
from tracking.analysis.report.sentences.templates import Sentence
from tracking.analysis.results import End
from tracking.analysis.statistics import POWER
from tracking.base import quantities
from tracking.base.number_text import significant

CONFIDENCE = f"{100 * (1 - ALPHA):.0f}"
SAME = 0.01  # ratios that differ by less than this share say the same
RUNS_TO_TELL = 3  # of a setting: the fewest that show the spread of its runs
TIME, COST = quantities.TIME_TO_ACCURACY_SEC, quantities.COST_TO_ACCURACY_USD
ENDS = {End.MISSED: "missed it", End.DIVERGED: "diverged", End.STOPPED: "stopped before it"}


def answer(task: Task, metric: str, chosen: Best | None, lead: str = "") -> list[Sentence]:
    """The best setting and its lead; then, if these runs cannot tell it from others, what would.

    `lead` begins the answer: it names the workload if a report has several.
    """
    if chosen is None:
        return [_no_best(task, metric, lead)]
    about: dict[str, Any] = {"lead": lead}
    about |= phrases.figure(chosen.leader, metric, phrases.target(task))
    if chosen.next is None:
        cost = estimate(chosen.leader.measured(COST)) if metric == TIME else None
        amount: dict[str, Any] = {"usd": None, "amount": ""}
        if cost:
            amount = {"usd": cost.mean, "amount": f", for {significant(cost.mean)} USD"}
        amount |= {"alone": " One setting: nothing to rank." if len(task.settings) == 1 else ""}
        return [Sentence("only setting", task.title, about | amount | {"setting": _alone(task, chosen.leader, lead)})]
    about |= phrases.subject(chosen.leader, "are", lead) | {"adjective": phrases.of_metric(metric)[0]}
    about |= _ahead(chosen, metric)
    if not chosen.tied:
        return [Sentence("best", task.title, about)]
    return [Sentence("best so far", task.title, about), _undecided(task, metric, chosen)]


def _no_best(task: Task, metric: str, lead: str) -> Sentence:
    lead = f"{lead}n" if lead else "N"
    values = {"lead": lead}
    if any(setting.measured(metric).reached for setting in task.settings):
        return Sentence("no direction", task.title, values | {"metric": metric, "why": quantities.why_unknown(metric)})
    ends = Counter(run.end for run, _, _ in task.excluded if grouping.is_censored(run))
    ends.update(run.end for run in task.runs if run.end is End.MISSED)
    if metric not in UNTIL_CENSORED or not ends:
        return Sentence("no run counts", task.title, values | {"metric": metric})
    counts = ", ".join(f"{ends[end]} {words}" for end, words in ENDS.items() if ends[end])
    return Sentence("no run reached", task.title, values | {"target": phrases.target(task), "counts": counts})


def _alone(task: Task, setting: Setting, lead: str) -> str:
    """`vgg on digits, the CPU: `; without the workload if a `lead` names it already."""
    names = [] if lead else [task.title.rpartition(" to ")[0] or task.title]
    names += [phrases.name(setting)] if setting.labels else []
    return f"{', '.join(names)}: " if names else ""


def _ahead(chosen: Best, metric: str) -> dict[str, Any]:
    """The leader's factor over the next setting, with its interval, and the ratio of their costs."""
    pair = chosen.next
    assert pair is not None
    other = pair.other_than(chosen.leader)
    values: dict[str, Any] = {"other": phrases.name(other), "factor": None, "ahead": "", "ratio": None, "amount": ""}
    if not _is_ahead(chosen):
        return values
    low, high = chosen.bounds or (None, None)
    values |= {"factor": pair.factor, "low": low, "high": None if high is None or math.isinf(high) else high}
    values["ahead"] = phrases.ahead(pair.factor, pair.at_least, phrases.of_metric(metric)[1], values["other"])
    values["ahead"] += phrases.between(low, values["high"], CONFIDENCE)
    ratio, what = _price(chosen.leader, other) if metric == TIME else (None, "")
    if ratio is not None and abs(ratio * pair.factor - 1) > SAME:  # Otherwise it repeats the factor.
        values |= {"ratio": ratio, "amount": f", at {significant(ratio, 2)} times the {what}"}
    return values


def _is_ahead(chosen: Best) -> bool:
    """Whether the answer compares the leader with the next: its mean is better, by a known factor."""
    pair = chosen.next
    return pair is not None and pair.better.name == chosen.leader.name and math.isfinite(pair.factor)


def _price(setting: Setting, other: Setting) -> tuple[float | None, str]:
    """A setting's cost to the target over the other's, else the ratio of their device-seconds; and which of the two."""
    costs, times = ([estimate(side.measured(key)) for side in (setting, other)] for key in (COST, TIME))
    if any(mean.bound for mean in (*costs, *times) if mean):
        return None, ""
    if costs[0] and costs[1] and costs[1].mean:
        return costs[0].mean / costs[1].mean, "cost"
    if not (times[0] and times[1] and setting.devices and other.devices):
        return None, ""
    on_gpus = all(run.params.get("gpus", "0") != "0" for side in (setting, other) for run in side.trained)
    ratio = times[0].mean * setting.devices / (times[1].mean * other.devices)
    return ratio, "GPU-seconds" if on_gpus else "process-seconds"


def _undecided(task: Task, metric: str, chosen: Best) -> Sentence:
    """The sentence that others may be the best too, and how many more runs would tell."""
    settings = [chosen.leader, *chosen.tied]
    if searched := [setting for setting in settings if setting.searched]:
        runs = [run for setting in searched for run in setting.runs_of(metric) if run.searched]
        sweeps = " and ".join(sorted({run.sweep or "" for run in runs}))
        values = {"searched": [setting.name for setting in searched], "sweeps": sweeps}
        return Sentence("searched", task.title, values | {"named": phrases.names(searched)})
    few = [setting for setting in settings if setting.measured(metric).n < 2]
    if few:
        numbers, words = _further([(each, RUNS_TO_TELL) for each in settings], metric)
        numbers["advice"] = f"; start with {words}" if words else ""
        if len(few) == len(settings):
            return Sentence("one run each", task.title, numbers)
        return Sentence("one run of some", task.title, numbers | {"few": phrases.names(few)})
    pair = chosen.undecided
    assert pair is not None
    other = pair.other_than(chosen.leader)
    apart = f"That cannot be told apart from {phrases.names(chosen.tied, 'or')}"
    if len(chosen.tied) == 1 and pair is chosen.next and _is_ahead(chosen):
        apart = "These runs cannot tell the two apart"
    named = {"tied": [setting.name for setting in chosen.tied], "apart": apart}
    needed = runs_that_would_tell(pair, metric, chosen.level)
    sizes = [(pair.better, needed.first), (pair.worse, needed.second)] if needed else []
    numbers, words = _further(sizes, metric)
    if not words:
        return Sentence("cannot tell", task.title, named)
    numbers |= {"further": words, "one": f" it from {phrases.name(other)}" if len(chosen.tied) > 1 else ""}
    return Sentence("cannot tell yet", task.title, named | numbers | {"percent": f"{100 * POWER:.0f}"})


def _further(sizes: Sequence[tuple[Setting, int]], metric: str) -> tuple[dict[str, Any], str]:
    """The further runs that give each setting its size in `sizes`, and their time; as numbers, and in words.

    The time assumes one run after the other, each as long as its setting's mean. Empty for runs that cannot be
    repeated: those of an imported log, and of settings that differ by seed.
    """
    more = [(each, total - n) for each, total in sizes if (n := each.measured(metric).n) < total]
    imported = any(run.params.get("program") == "imported" for setting, _ in more for run in setting.trained)
    if imported or any("seed" in setting.labels for setting, _ in more):
        return {"more": {}, "seconds": None}, ""
    lasted = [number * _mean_sec(setting) for setting, number in more]
    seconds = math.fsum(lasted) if lasted and all(lasted) else None
    words = phrases.seeds([(phrases.name(setting), number) for setting, number in more], [n for _, n in sizes])
    words += f" ({phrases.about_sec(seconds)})" if words and seconds is not None else ""
    return {"more": {each.name: number for each, number in more}, "seconds": seconds}, words


def _mean_sec(setting: Setting) -> float:
    """The mean seconds of a setting's runs, from submission to end; 0 if unknown."""
    spans = [(run.end_ms - run.start_ms) / 1e3 for run in setting.trained if run.end_ms is not None]
    return max(0.0, fmean(spans)) if spans else 0.0


def spent(task: Task) -> float:
    """The cost in USD of all runs that are averaged; 0 without a price."""
    return math.fsum(run.metrics.get(quantities.COST_USD, 0.0) for run in task.runs)
