"""The sentences of a report: each record's numbers and names against the journals, and its text against these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from tracking.audit import stacks
from tracking.audit.arithmetic import PairTest, close, marked, moments_of, printed, step, tolerance, would_tell
from tracking.audit.evidence import OF_TARGETS, AuditResult, Evidence, Labels, computable, name_of
from tracking.audit.stack_choice import stands_first

MOST_NAMED = 3  # tied settings; a sentence only counts the others
COST = "cost/to_accuracy_usd"
OF_LEADERS = {
    "no run counts", "only setting", "tied", "tied with many", "better than the other", "better than all",
    "ahead of the other", "ahead of all",
}  # fmt: skip
OF_COSTS = {"cost", "without cost"}
VERDICTS = {"told apart", "told apart without a factor", "not told apart", "one run"}
REPEATS = "runs that would tell"
OFTEN, BEST_OFTEN = "more often", "best more often"
Record = Mapping[str, Any]


def compare(evidence: Evidence, tally: AuditResult) -> None:
    """Compare every record, and whether the answer is made of one sentence of each sort a workload."""
    said = OF_LEADERS | OF_COSTS | {BEST_OFTEN}
    answer = [record for record in evidence.report["sentences"] if record["kind"] in said]
    text = " ".join(record["text"] for record in answer)
    tally.note(text == evidence.report["answer"], "the answer is not made of the sentences of its records")
    titles = sorted({run["workload"] for run in evidence.claimed.values()})
    leaders = sorted(record["workload"] for record in answer if record["kind"] in OF_LEADERS)
    tally.note(leaders == titles, f"the answer is about {leaders}, and the runs are of {titles}")
    priced = sorted(record["workload"] for record in answer if record["kind"] in OF_COSTS)
    counting = sorted(record["workload"] for record in answer if record["kind"] in OF_LEADERS - {"no run counts"})
    tally.note(priced == counting, f"the answer says what {priced} rest on, and runs of {counting} count")
    for leader in (record for record in answer if "setting" in record["values"] and record["kind"] in OF_LEADERS):
        than = _reach_less_often(evidence, leader["workload"], leader["values"]["setting"])
        there = sum((other["kind"], other["workload"]) == (BEST_OFTEN, leader["workload"]) for other in answer)
        tally.note(there == bool(than), f"{leader['workload']}: the best reaches the target more often than {than}")
    for record in evidence.report["sentences"]:
        good = _rendered(record) and _holds(evidence, record)
        words = f"{record['workload']}: {record['kind']}: the journals do not say that {record['text']!r}"
        tally.note(good, words)


def of_pair(evidence: Evidence, workload: str, better: str, worse: str) -> tuple[str, str, str]:
    """The texts of a pair's verdict, of which reaches the target more often, and of how many runs a side would tell it;
    "" where there is none."""
    mine = [
        record
        for record in evidence.report["sentences"]
        if record["workload"] == workload
        and (record["values"].get("better"), record["values"].get("worse")) == (better, worse)
    ]
    verdict, often, repeats = (
        next((record["text"] for record in mine if record["kind"] in kinds), "")
        for kinds in (VERDICTS, {OFTEN}, {REPEATS})
    )
    return verdict, often, repeats


def _reach_less_often(evidence: Evidence, title: str, name: str) -> set[str]:
    """The settings than which one reaches the target more often."""
    pairs = evidence.pairs(title) if computable(evidence.report["metric"]) else {}
    return {other for both, pair in pairs.items() if pair.more_often == name for other in both - {name}}


def _rendered(record: Record) -> bool:
    """Whether the text is the template filled with the values, and the template says no number by itself."""
    literals = [literal for literal, *_ in Formatter().parse(record["template"])]
    if any(letter.isdigit() for literal in literals for letter in literal):
        return False
    return bool(record["template"].format(**record["values"]) == record["text"])


def _holds(evidence: Evidence, record: Record) -> bool:
    kind, title, values = record["kind"], record["workload"], record["values"]
    if kind == "excluded":
        excluded = sum(not evidence.counts(run) for run in evidence.runs.values())
        return (values["num_excluded"], values["num_runs"]) == (excluded, len(evidence.claimed))
    if kind in OF_LEADERS:
        return not computable(evidence.report["metric"]) or _leader(evidence, title, kind, values)
    if kind in OF_COSTS:
        return _cost(evidence, title, kind, values)
    if kind == BEST_OFTEN:
        than = _reach_less_often(evidence, title, values["setting"])
        return set(values["than"]) == than and values["named"] == ", ".join(values["than"])
    if kind in stacks.KINDS:
        return stacks.holds(evidence, record)
    pairs = evidence.pairs(title)
    pair = pairs.get(frozenset((values["better"], values["worse"])))
    if pair is None:
        return False
    return stacks.gap_holds(evidence, record) if kind.startswith("gap") else _pair(evidence, title, pairs, record)


def _leader(evidence: Evidence, title: str, kind: str, values: Record) -> bool:
    key = evidence.report["metric"]
    settings = _with_values(evidence, title, key)
    if not settings or kind == "no run counts":
        return not settings and kind == "no run counts" and (values["workload"], values["metric"]) == (title, key)
    name = values["setting"]
    pairs = {both: pair for both, pair in evidence.pairs(title).items() if name in both}
    ahead = {both for both, pair in pairs.items() if pair.told_apart and pair.better == name}
    tied = {other for both in pairs.keys() - ahead for other in both - {name}}
    by_factor = all(math.isfinite(pair.factor) for pair in pairs.values())
    if kind != _kind(len(pairs), len(tied), by_factor) or (values["workload"], values["metric"]) != (title, key):
        return False
    good = _is_best(evidence, title, settings, key, values)
    if tied:
        listed = values["tied"]
        good = good and set(listed) == tied and values.get("more", 0) == max(len(listed) - MOST_NAMED, 0)
        return good and len(listed) == len(tied) and values["named"] == ", ".join(listed[:MOST_NAMED])
    if pairs:
        good = good and values.get("num_others") == len(pairs)
    if pairs and by_factor:
        factor = min(pair.factor for pair in pairs.values())
        good = good and close(values["factor"], factor, _near(key), 1)
    return good


def _kind(num_pairs: int, num_tied: int, by_factor: bool) -> str:
    """Which sentence is due to the best of the settings, by how many others there are and how many are tied, and by
    whether it has a factor to each."""
    if not num_pairs:
        return "only setting"
    if num_tied:
        return "tied with many" if num_tied > MOST_NAMED else "tied"
    return f"{'better than' if by_factor else 'ahead of'} {'the other' if num_pairs == 1 else 'all'}"


def _with_values(evidence: Evidence, title: str, key: str) -> list[Labels]:
    """The settings of which something is known by this metric, if a run of them has it."""
    samples = {name_of(setting): evidence.sample(title, setting, key) for setting in evidence.settings(title)}
    if not any(sample.numbers for sample in samples.values()):
        return []
    return [setting for setting in evidence.settings(title) if len(samples[name_of(setting)])]


def _is_best(evidence: Evidence, title: str, settings: Sequence[Labels], key: str, values: Record) -> bool:
    """Whether no other setting stands before it, and its numbers are those of its record."""
    by_name = {name_of(setting): setting for setting in settings}
    if values["setting"] not in by_name:
        return False
    sample = evidence.sample(title, by_name[values["setting"]], key)
    numbers = moments_of(sample)
    if numbers is None:
        return False
    pairs = evidence.pairs(title, key)
    claimed = [values[name] for name in ("n", "mean", "standard_error", "olympic_mean")]
    near = tolerance(key)
    good = all(close(claim, number, near, numbers[1]) for claim, number in zip(claimed, numbers, strict=True))
    share = evidence.share(title, by_name[values["setting"]]) if key in OF_TARGETS else ""
    good = good and values["reached"] == (f"; reached by {share}" if share else "") and marked(values["figure"], sample)
    return good and stands_first(values["setting"], by_name, pairs) and printed(values["figure"], numbers[1:], near)


def _cost(evidence: Evidence, title: str, kind: str, values: Record) -> bool:
    counting = sum(evidence.counts(evidence.runs[run_id]) for run_id in evidence.members(title))
    total = sum(run["workload"] == title for run in evidence.claimed.values())
    members = [evidence.runs[run_id] for run_id in evidence.members(title)]
    short = sum(run.stopped_short for run in members)
    nowhere = sum(not run.stopped_short and not evidence.counts(run) for run in members)
    good = (values["num_averaged"], values["num_runs"]) == (counting, total)
    good = good and (values["num_given_up"], values["num_excluded"]) == (short, nowhere)
    settings = _with_values(evidence, title, COST)
    if not settings or kind == "without cost":
        return good and not settings and kind == "without cost"
    spent = close(values["spent_usd"], evidence.spent_usd(title), 1e-9, 1)
    return good and spent and _is_best(evidence, title, settings, COST, values)


def _pair(evidence: Evidence, title: str, pairs: Mapping[frozenset[str], PairTest], record: Record) -> bool:
    kind, values, key = record["kind"], record["values"], evidence.report["metric"]
    better, worse = values["better"], values["worse"]
    pair = pairs[frozenset((better, worse))]
    by_name = {name_of(setting): setting for setting in evidence.settings(title)}
    if better != pair.better and pair.factor - 1 > _near(key):
        return False
    if kind == OFTEN:
        counts = tuple(values[name] for name in ("reached", "n", "other_reached", "m"))
        good = counts == pair.counts and values["often"] == pair.more_often
        return bool(good and {values["often"], values["seldom"]} == {better, worse})
    if kind == REPEATS:
        samples = [evidence.sample(title, by_name[name], key) for name in (better, worse)]
        first, second = (sample.numbers for sample in samples)
        if any(sample.num_short for sample in samples):
            return False
        num_tested = sum(other.p is not None for other in pairs.values())
        level = 0.05 / (2 * max(1, num_tested))
        return not pair.told_apart and would_tell(values["num_runs"], first, second, step(key), lambda _: level)
    if pair.corrected is None:
        few = [name for name in (better, worse) if len(evidence.sample(title, by_name[name], key)) < 2]
        return kind == "one run" and values["few"] == " and of ".join(few)
    if not pair.told_apart:
        return bool(kind == "not told apart")
    if math.isinf(pair.factor):
        return bool(kind == "told apart without a factor")
    return kind == "told apart" and close(values["factor"], pair.factor, _near(key), 1)


def _near(key: str) -> float:
    return max(tolerance(key), 1e-6)
