"""The sentences after a report's answer, from the journals: misses, runs that do not count, costs and limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tracking.analysis.audit.answers import phrases
from tracking.analysis.audit.arithmetic import moments_of, tolerance, wilson
from tracking.analysis.audit.evidence import CAUSES, Evidence, Labels, Near, That, largest, name_of
from tracking.analysis.audit.journals import PREFIX
from tracking.base import quantities

KINDS = ("best more often", "misses", "not counted", "cheapest", "cheapest too", "limit")
COST = quantities.COST_TO_ACCURACY_USD
Record = Mapping[str, Any]
Due = tuple[str, dict[str, Any], str]


def expected(report: Record, evidence: Evidence, workload: str, by_kind: Mapping[str, Record]) -> Iterator[Due]:
    """The expected sentences: kind, numbers and text. `by_kind` holds the report's sentences of the workload."""
    records = [record for record in report["best"] if record["workload"] == workload and record["among"] is None]
    if records:
        leader = records[0]["leader"]
        yield from _more_often(report, workload, leader)
        yield from _misses(evidence, workload)
    yield from _not_counted(report, evidence, workload, by_kind.get("not counted", {}))
    if records:
        yield from _cheapest(evidence, workload, leader, by_kind)
        yield from _limit(evidence, workload, leader, by_kind.get("limit", {}))


def _more_often(report: Record, workload: str, leader: Labels) -> Iterator[Due]:
    others = []
    for pair in report["comparisons"]:
        often = pair["reaches_more_often"] or {}
        if (
            pair["workload"] == workload
            and leader in (pair["better"], pair["worse"])
            and often.get("setting") == leader
        ):
            others.append(pair["worse" if pair["better"] == leader else "better"])
    if others:
        name, named = phrases.called(leader), phrases.listed([*map(phrases.called, others)], "and")
        verb = phrases.agreeing(name, "reaches", "reach")
        yield (
            "best more often",
            {"than": [*map(name_of, others)]},
            f"{phrases.begun(name)} {verb} the target more often than {named}.",
        )


def _misses(evidence: Evidence, workload: str) -> Iterator[Due]:
    if evidence.metric not in quantities.TO_ACCURACY:
        return
    short = [
        setting
        for setting in evidence.settings(workload)
        if evidence.short(workload, setting) or evidence.stopped(workload, setting)
    ]
    parts = []
    for setting in short[: phrases.MOST_NAMED]:
        hits, n = evidence.reached(workload, setting)
        words = phrases.called(setting)
        if n:
            low, high = wilson(hits, n)
            words += f" in {hits} of {phrases.number_of(n, 'run')}"
            words += f" ({100 * low:.0f}-{100 * high:.0f} %)" if n >= 5 else ""
        stopped = len(evidence.stopped(workload, setting))
        parts.append(words + (f", {stopped} stopped before it" if stopped else ""))
    if left := len(short) - len(parts):
        parts.append(f"{phrases.number_of(left, 'more setting')} not in every run")
    if short:
        yield "misses", {"short": [*map(name_of, short)]}, f"Reached the target: {'; '.join(parts)}."


def _not_counted(report: Record, evidence: Evidence, workload: str, claimed: Record) -> Iterator[Due]:
    excluded = [run for run in report["excluded"] if run["workload"] == workload]
    total = len(excluded) + sum(run["workload"] == workload for run in report["runs"])
    ends = [(evidence.runs[str(run["uid"])], run["why"]) for run in excluded]
    whys = Counter(why for run, why in ends if not (run.stopped_short or run.stopped) and "exploring" not in why)
    if num := sum(whys.values()):
        numbers = ", ".join(f"{why} ({number})" for why, number in claimed["whys"].items())
        verb = "is" if num == 1 else "are"
        shown = {"num": num, "total": total, "whys": dict(whys), "counts": numbers}
        in_order = [*claimed["whys"].values()] == sorted(claimed["whys"].values(), reverse=True)
        shown |= {} if in_order else {"counts": "those of most runs first"}
        yield "not counted", shown, f"{num} of {total} runs {verb} not counted: {numbers}."


def _cheapest(evidence: Evidence, workload: str, leader: Labels, by_kind: Mapping[str, Record]) -> Iterator[Due]:
    """The sentence on the setting that the report names, whose mean must be the lowest, and no lower bound."""
    samples = {}
    for setting in evidence.settings(workload):
        if len(sample := evidence.sample(workload, setting, COST)):
            samples[phrases.called(setting)] = sample
    means = {name: moments for name, sample in samples.items() if (moments := moments_of(sample))}
    if len(means) < 2 or evidence.metric == COST:
        return
    lowest, following = sorted(moments[1] for moments in means.values())[:2]
    if math.isclose(lowest, following):
        return
    if any(samples[name].num_short for name, moments in means.items() if moments[1] == lowest):
        return
    kind = "cheapest" if "cheapest" in by_kind else "cheapest too"
    claimed = by_kind[kind]
    # The record has the name as at the start of a sentence.
    named = {phrases.begun(other): other for other in samples}
    name = named[claimed["setting"]] if kind == "cheapest" else phrases.called(leader)
    n, mean, error, _ = means[name]
    numbers: dict[str, Any] = {"n": n, "standard_error": Near(error, tolerance(COST), mean)}
    numbers["mean"] = That(lambda value: Near(lowest, tolerance(COST)).holds(value), f"the lowest mean, {lowest}")
    words = phrases.figure(claimed, "", COST, "")
    if kind == "cheapest too":
        yield kind, numbers, f"That has the lowest mean cost to the target as well: {words}."
        return
    verb = phrases.agreeing(name, "has", "have")
    yield kind, numbers, f"{phrases.begun(name)} {verb} the lowest mean cost to the target: {words}."


def _limit(evidence: Evidence, workload: str, leader: Labels, claimed: Record) -> Iterator[Due]:
    means = {}
    for words, cause in CAUSES.items():
        if moments := moments_of(evidence.sample(workload, leader, f"{PREFIX}{cause}_fraction")):
            means[words] = moments[1]
    if not means:
        return
    cause, name = largest(means), phrases.called(leader)
    share, verb = means.get(cause, 0.0), phrases.agreeing(name, "is", "are")
    shown, advice = f"{100 * claimed['share']:.0f}", claimed["next"]
    text = f"{phrases.begun(name)} {verb} limited by {cause} ({shown} % of the time); try first: {advice}."
    yield "limit", {"cause": cause, "share": Near(share, 1e-6, 1e-6)}, text
