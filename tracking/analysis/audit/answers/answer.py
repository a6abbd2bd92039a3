"""Check a report's answer: recompute its numbers from the journals, and its sentences from these numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from tracking.analysis.audit.answers import beside_answer, phrases
from tracking.analysis.audit.arithmetic import Observations, level, moments_of, tolerance, would_tell
from tracking.analysis.audit.evidence import (
    OF_TARGETS,
    UNCHECKED,
    AuditResult,
    Evidence,
    Labels,
    Near,
    by_identity,
    compare,
    name_of,
)
from tracking.base import quantities
from tracking.base.number_text import filled, significant

HEADLINES = ("no run reached", "no run counts", "no direction", "only setting", "best", "best so far", "one run each",
             "one run of some", "searched", "cannot tell", "cannot tell yet")  # fmt: skip
TIME, COST = quantities.TIME_TO_ACCURACY_SEC, quantities.COST_TO_ACCURACY_USD
Record = Mapping[str, Any]


def check(report: Record, evidence: Evidence, tally: AuditResult) -> None:
    """Note every number and word of the answer that differs from what the journals say."""
    of_answer = (*HEADLINES, *beside_answer.KINDS)
    listed = [sentence for sentence in report["sentences"] if sentence["kind"] in of_answer]
    claimed = by_identity(tally, "sentences", listed, _identity)
    expected = {}
    for workload in _unanswered(report, evidence):
        by_kind = {sentence["kind"]: sentence["values"] for sentence in listed if sentence["workload"] == workload}
        sentences = [*_headline(report, evidence, workload, by_kind)]
        sentences += beside_answer.expected(report, evidence, workload, by_kind)
        for kind, values, text in sentences:
            named = by_kind.get(kind, {})
            values = {key: UNCHECKED for key, value in named.items() if isinstance(value, str)} | values
            made = {"kind": kind, "workload": workload, "values": values, "template": UNCHECKED, "text": text}
            expected[_identity(made)] = made
    compare(tally, "sentences", claimed, expected)
    for sentence in listed:
        text = filled(str(sentence["template"]), sentence["values"])
        tally.note(text == sentence["text"], f"sentences: {sentence['kind']}: its text does not have its values")
    _joined(report, evidence, listed, tally)


def _joined(report: Record, evidence: Evidence, sentences: list[Record], tally: AuditResult) -> None:
    """Note if `answer` or `headlines` are not the words of the searches and these sentences."""
    whole = [str(each["words"]) for each in report["searched"]]
    headlines = [*whole]
    for workload in _unanswered(report, evidence):
        of_workload = [sentence for sentence in sentences if sentence["workload"] == workload]
        first = [sentence["text"] for sentence in of_workload if sentence["kind"] in HEADLINES]
        headlines.append(" ".join(first))
        whole += [*first, *(sentence["text"] for sentence in of_workload if sentence["kind"] in beside_answer.KINDS)]
    tally.note(report["answer"] == " ".join(whole), "answer: differs from the sentences")
    tally.note(report["headlines"] == headlines, "headlines: differ from the sentences")


def _unanswered(report: Record, evidence: Evidence) -> list[str]:
    """The workloads that have runs outside of the searches with answers."""
    sweeps = {each["sweep"] for each in report["searched"]}
    return [
        workload
        for workload in evidence.workloads()
        if any(evidence.runs[uid].tags.get("sweep") not in sweeps for uid in evidence.members(workload))
    ]


def _identity(sentence: Record) -> str:
    return f"{sentence.get('workload')}: {sentence.get('kind')}"


def _headline(
    report: Record, evidence: Evidence, workload: str, by_kind: Mapping[str, Record]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The expected sentences: kind, numbers and text."""
    records = [record for record in report["best"] if record["workload"] == workload and record["among"] is None]
    lead = f"For {workload.rpartition(' to ')[0] or workload}, " if len(evidence.workloads()) > 1 else ""
    if not records:
        yield _without(evidence, workload, lead)
        return
    record, metric = records[0], evidence.metric
    leader, others = record["leader"], [each for each in record["candidates"] if each != record["leader"]]
    kind = "only setting" if record["next"] is None else "best so far" if others else "best"
    sample = evidence.sample(workload, leader, metric)
    claimed, numbers = by_kind[kind], mean_of(sample, metric)
    bound = sample.sign
    to = workload.rpartition(" to ")[2] if " to " in workload and metric in OF_TARGETS else ""
    words = phrases.figure(claimed, bound, metric, to)
    if record["next"] is None:
        cost = moments_of(evidence.sample(workload, leader, COST)) if metric == TIME else None
        parts = ["" if lead else workload.rpartition(" to ")[0] or workload, phrases.called(leader) if leader else ""]
        named = ", ".join(filter(None, parts))
        name = f"{named}: " if named else ""
        alone = " One setting: nothing to rank." if len(evidence.settings(workload)) == 1 else ""
        for_usd = f", for {significant(claimed['usd'])} USD" if cost else ""
        yield kind, numbers | {"usd": Near(cost and cost[1], 1e-9)}, f"{lead}{name}{words}{for_usd}.{alone}"
        return
    name = phrases.called(leader)
    verb, best = phrases.agreeing(name, "is", "are"), phrases.adjective(metric)[0]
    ahead, text = _ahead(report, evidence, workload, record, claimed)
    so_far, name = " so far" if others else "", name if lead else phrases.begun(name)
    yield kind, numbers | ahead, f"{lead}{name} {verb} {best}{so_far}: {words}{text}."
    if others:
        yield _undecided(report, evidence, workload, record, by_kind)


def mean_of(sample: Observations, metric: str) -> dict[str, Any]:
    moments = moments_of(sample)
    assert moments is not None
    n, mean, error, _ = moments
    near = tolerance(metric)
    return {"n": n, "mean": Near(mean, near), "standard_error": Near(error, near, mean)}


def _without(evidence: Evidence, workload: str, lead: str) -> tuple[str, dict[str, Any], str]:
    """The expected sentence if no setting is the best."""
    start, metric = f"{lead}{'n' if lead else 'N'}o", evidence.metric
    samples = [evidence.sample(workload, setting, metric) for setting in evidence.settings(workload)]
    if any(sample.numbers for sample in samples):
        why = quantities.why_unknown(metric)
        return "no direction", {}, f"{start} setting is the best by {metric}: {why}."
    runs = [evidence.runs[uid] for uid in evidence.members(workload)]
    missed = sum(run.stopped_short and not run.diverged for run in runs)
    diverged, stopped = sum(run.stopped_short and run.diverged for run in runs), sum(run.stopped for run in runs)
    ends = {"missed it": missed, "diverged": diverged, "stopped before it": stopped}
    counts = ", ".join(f"{number} {words}" for words, number in ends.items() if number)
    if not counts or metric not in quantities.TO_ACCURACY:
        return "no run counts", {}, f"{start} run that counts has {metric}."
    return "no run reached", {}, f"{start} run reached {workload.rpartition(' to ')[2]}: {counts}."


def _ahead(
    report: Record, evidence: Evidence, workload: str, record: Record, claimed: Record
) -> tuple[dict[str, Any], str]:
    """The leader's factor over the next setting, as in `best`, and the ratio of their costs; numbers and words."""
    metric, leader, other = evidence.metric, record["leader"], record["next"]
    leads = any(
        pair["workload"] == workload and pair["better"] == leader and pair["worse"] == other
        for pair in report["comparisons"]
    )
    values: dict[str, Any] = {"other": phrases.called(other), "factor": None, "ratio": None}
    factor = record["factor"] if leads else None
    if factor is None:
        return values, ""
    low, high = record["low"], record["high"]
    values |= {"factor": factor, "low": low, "high": high}
    least = "at least " if evidence.sample(workload, other, metric).num_short else ""
    times = f"{least}{significant(factor)} times" if factor >= 1.005 else least.strip() or "about"
    text = f", {times} {phrases.adjective(metric)[1]} as {values['other']}{phrases.between(low, high)}"
    ratio, what = _price(evidence, workload, leader, other) if metric == TIME else (None, "")
    if ratio is None or abs(ratio * factor - 1) <= 0.01:
        return values, text
    return values | {"ratio": Near(ratio, 1e-9)}, f"{text}, at {significant(claimed['ratio'], 2)} times the {what}"


def _price(evidence: Evidence, workload: str, leader: Labels, other: Labels) -> tuple[float | None, str]:
    """The ratio of the costs to accuracy, else of the device-seconds; and which of the two."""
    sides = (leader, other)
    costs, times = ([evidence.sample(workload, side, key) for side in sides] for key in (COST, TIME))
    if any(sample.num_short for sample in (*costs, *times)):
        return None, ""
    if all(len(sample) for sample in costs) and fmean(costs[1].numbers):
        return fmean(costs[0].numbers) / fmean(costs[1].numbers), "cost"
    devices = [evidence.devices(workload, side) for side in sides]
    if not all(devices) or not all(len(sample) for sample in times):
        return None, ""
    spent = [fmean(sample.numbers) * (number or 0.0) for sample, number in zip(times, devices, strict=True)]
    ended = [run for side in sides for run in evidence.ended(workload, side).values()]
    on_gpus = all(str(run.params.get("gpus", "0")) != "0" for run in ended)
    return spent[0] / spent[1], "GPU-seconds" if on_gpus else "process-seconds"


def _undecided(
    report: Record, evidence: Evidence, workload: str, record: Record, by_kind: Mapping[str, Record]
) -> tuple[str, dict[str, Any], str]:
    """The expected sentence that others may be the best too, and how many more runs would tell."""
    leader, metric = record["leader"], evidence.metric
    others = [each for each in record["candidates"] if each != leader]
    if searched := [each for each in (leader, *others) if evidence.searched(workload, each)]:
        return _of_search(evidence, workload, searched)
    samples = {name_of(each): evidence.sample(workload, each, metric) for each in (leader, *others)}
    few = [each for each in (leader, *others) if len(samples[name_of(each)]) < 2]
    if few:
        every = len(few) == len(samples)
        kind = "one run each" if every else "one run of some"
        values, words = _further(evidence, workload, [(each, 3) for each in (leader, *others)], by_kind[kind])
        advice = f"; start with {words}" if words else ""
        subject = "each" if every else f"of {phrases.listed([*map(phrases.called, few)], 'and')}"
        return kind, values, f"One run {subject} is too few to tell{advice}."
    named = phrases.listed([*map(phrases.called, others)], "or")
    text, tied = f"That cannot be told apart from {named}", {"tied": [*map(name_of, others)]}
    closest = record["undecided"]
    if others == [record["next"]] and by_kind["best so far"]["factor"] is not None:
        text = "These runs cannot tell the two apart"
    [sides] = [
        (pair["better"], pair["worse"])
        for pair in report["comparisons"]
        if pair["workload"] == workload
        and leader in (pair["better"], pair["worse"])
        and closest in (pair["better"], pair["worse"])
    ]
    better, worse = (evidence.sample(workload, side, metric) for side in sides)
    needed = would_tell(better, worse, level(record["num_tested"]))
    sizes = [*zip(sides, (needed.better, needed.worse), strict=True)] if needed else []
    values, words = _further(evidence, workload, sizes, by_kind.get("cannot tell yet", {}))
    if not words:
        return "cannot tell", tied, f"{text}."
    it = f" it from {phrases.called(closest)}" if len(others) > 1 else ""
    would = f"would tell{it} in 80 % of cases, if the lead is as large as it looks."
    return "cannot tell yet", tied | values, f"{text}; {words} {would}"


def _of_search(evidence: Evidence, workload: str, searched: list[Labels]) -> tuple[str, dict[str, Any], str]:
    """The expected sentence that runs of a search are not tested."""
    runs = [run for setting in searched for run in evidence.searched(workload, setting)]
    sweeps = " and ".join(sorted({str(run.tags.get("sweep", "")) for run in runs}))
    named = phrases.listed([*map(phrases.called, searched)], "and")
    text = f"A search looked at runs of {named} before it chose whether to make more, so they are not tested here; "
    values = {"searched": [*map(name_of, searched)], "sweeps": sweeps}
    return "searched", values, f"{text}its answer is in search.json of {sweeps}."


def _further(
    evidence: Evidence, workload: str, sizes: list[tuple[Labels, int]], claimed: Record
) -> tuple[dict[str, Any], str]:
    """How many more runs each setting needs, and their time if they last as long as its runs; numbers and words."""
    have = [len(evidence.sample(workload, setting, evidence.metric)) for setting, _ in sizes]
    more = [(setting, total - n) for (setting, total), n in zip(sizes, have, strict=True) if total > n]
    ended = {name_of(setting): [*evidence.ended(workload, setting).values()] for setting, _ in more}
    imported = any(run.params.get("program") == "imported" for runs in ended.values() for run in runs)
    if imported or any("seed" in setting for setting, _ in more):
        return {"more": {}, "seconds": None}, ""
    spans = {name: [run.lasted_sec for run in runs] for name, runs in ended.items()}
    lasted = [number * fmean(spans[name_of(setting)] or [0.0]) for setting, number in more]
    seconds = sum(lasted) if lasted and all(lasted) else None
    values = {"more": {name_of(setting): number for setting, number in more}, "seconds": Near(seconds, 1e-6)}
    words = phrases.further(
        {phrases.called(setting): number for setting, number in more}, [total for _, total in sizes]
    )
    takes = f" ({phrases.span(claimed['seconds'])})" if words and seconds is not None else ""
    return values, words + takes
