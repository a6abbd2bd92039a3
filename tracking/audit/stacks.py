"""What a report says of software stacks, against the journals: the best and the worst, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracking.audit.arithmetic import (
    MOST_RUNS,
    Observations,
    PairTest,
    bounds_hold,
    close,
    has_bounds,
    moments_of,
    power,
    printed,
    step,
    tolerance,
    would_tell,
)
from tracking.audit.evidence import AuditResult, Evidence, name_of
from tracking.audit.stack_choice import StackChoice, choice_of, is_stack, without_stack

COST = "cost/to_accuracy_usd"
NEAR_P = 1e-4  # the difference between two ways to compute the distribution of a range
VERDICTS = ("best stack", "no best stack", "stack of one run")
WORTH = ("best stack saves", "best stack costs")
DECIDING = ("runs that would decide", "decides when")
KINDS = {*VERDICTS, *WORTH, *DECIDING}
MISSES, EQUALS = "runs that did not reach the target have no spread", "the means are equal, or nobody makes so many"
Record = Mapping[str, Any]


def note_of(evidence: Evidence, workload: str, names: set[str]) -> str:
    """All that the report says of a pair of stacks."""
    return "".join(record["text"] for record in _records(evidence, workload) if set(record["values"]["pair"]) == names)


def _records(evidence: Evidence, workload: str) -> list[Record]:
    return [
        record for record in evidence.report["sentences"] if record["kind"] in KINDS and record["workload"] == workload
    ]


def compare(evidence: Evidence, tally: AuditResult) -> None:
    """Whether every sentence and table that is due is there: no number of a record says that another is left out."""
    if not any(is_stack(axis) for axis in evidence.report["by"]):
        return
    for workload in sorted({run["workload"] for run in evidence.claimed.values()}):
        said: dict[tuple[Any, ...], list[Record]] = {}
        by_name = {name_of(setting): setting for setting in evidence.settings(workload)}
        for record in _records(evidence, workload):
            said.setdefault(without_stack(by_name.get(record["values"]["pair"][0], {})), []).append(record)
        for family in sorted({without_stack(setting) for setting in by_name.values()}):
            member = next(name for name, setting in by_name.items() if without_stack(setting) == family)
            records = said.get(family, [])
            good = _complete(evidence, workload, choice_of(evidence, workload, member), records)
            words = f"{workload}, {name_of(dict(family))}: says {[record['kind'] for record in records]} of its stacks"
            tally.note(good, f"{words}, and something else is due")
        due = {without_stack(setting) for name, setting in by_name.items() if choice_of(evidence, workload, name).pairs}
        tables = [
            table for table in evidence.report["tables"] if (table["kind"], table["about"]) == ("stacks", workload)
        ]
        shown = [without_stack(by_name.get(table["rows"][0][1], {})) for table in tables]
        words = f"{workload}: {len(tables)} tables of the best and the worst stack, {len(due)} are due"
        tally.note(len(shown) == len(due) and set(shown) == due, words)


def _complete(
    evidence: Evidence, workload: str, choice: StackChoice, records: list[Record]
) -> bool:  # fmt: skip
    kinds = [record["kind"] for record in records]
    if not choice.pairs:
        return not kinds
    if not kinds or frozenset(records[0]["values"]["pair"]) not in choice.pairs:
        return False
    pair = choice.corrected(frozenset(records[0]["values"]["pair"]))
    if pair.corrected is None:
        return kinds == [VERDICTS[2]]
    if not pair.told_apart:
        return kinds[:1] == [VERDICTS[1]] and len(kinds) == 2 and kinds[1] in DECIDING
    priced = _saved(evidence, workload, records[0]["values"]["pair"]) is not None
    return kinds[:1] == [VERDICTS[0]] and len(kinds) == 1 + priced and (not priced or kinds[1] in WORTH)


def holds(evidence: Evidence, record: Record) -> bool:
    """Whether a record on stacks says what the journals do."""
    workload, values, key = record["workload"], record["values"], evidence.report["metric"]
    by_name = {name_of(setting): setting for setting in evidence.settings(workload)}
    names = values["pair"]
    choice = choice_of(evidence, workload, names[0])
    if frozenset(names) not in choice.pairs:
        return False
    pair = choice.corrected(frozenset(names))
    own = [name_of({axis: value for axis, value in by_name[name].items() if is_stack(axis)}) for name in names]
    near = max(tolerance(key), 1e-6)
    widest = max(other.factor for other in choice.pairs.values())
    good = own == [values["better"], values["worse"]] and pair.factor >= widest * (1 - near)
    good = good and (pair.better == names[0] or pair.factor - 1 <= near)
    check = next(check for kinds, check in CHECKS.items() if record["kind"] in kinds)
    return good and check(evidence, workload, pair, record)


def _verdict(evidence: Evidence, workload: str, pair: PairTest, record: Record) -> bool:
    kind, values, key = record["kind"], record["values"], evidence.report["metric"]
    by_name = {name_of(setting): setting for setting in evidence.settings(workload)}
    others = "".join(f", {axis}={value}" for axis, value in without_stack(by_name[values["pair"][0]]))
    good = (values["workload"], values["among"]) == (workload, others)
    good = good and close(values["factor"], pair.factor, max(tolerance(key), 1e-6), 1)
    samples = [evidence.sample(workload, by_name[name], key) for name in values["pair"]]
    if pair.corrected is None:
        few = [name for name, sample in zip(values["pair"], samples, strict=True) if len(sample) < 2]
        return good and kind == VERDICTS[2] and values["few"] == " and of ".join(few)
    good = good and kind == VERDICTS[not pair.told_apart]
    if not has_bounds(key, samples[0], samples[1]):
        return good and (values["low"], values["high"], values["interval"]) == (None, None, "")
    choice = choice_of(evidence, workload, values["pair"][0])
    num_stacks, level = len(choice.tested), choice.level(choice.freedom(frozenset(values["pair"])))
    low, high, text = values["low"], values["high"], values["interval"]
    good = good and (values["num_stacks"], values["confidence"]) == (num_stacks, 0.95)
    between = f"{low:.3g} to {high:.3g}" if low and high else f"up to {high:.3g}" if high else f"{low:.3g} or more"
    words = f" ({between if low or high else 'any'}, with 95% confidence"
    words += f" for all {num_stacks} stacks at once)" if num_stacks > 2 else ")"
    return good and text == words and bounds_hold(key, samples[0], samples[1], low, high, level)


def gap_holds(evidence: Evidence, record: Record) -> bool:
    """Whether the gap between the best and the worst stack is more than the noise where a record says so."""
    values = record["values"]
    names = frozenset((values["better"], values["worse"]))
    choice = choice_of(evidence, record["workload"], values["better"])
    if names not in choice.pairs:
        return False
    pair = choice.corrected(names)
    if pair.corrected is None:
        return bool(record["kind"] == "gap of one run")
    if record["kind"] != ("gap told apart" if pair.told_apart else "gap not told apart"):
        return False
    return values["num_stacks"] == len(choice.tested) and close(values["p_corrected"], pair.corrected, NEAR_P, 0)


def _saved(
    evidence: Evidence, workload: str, names: list[str]
) -> tuple[float, float | None, str, list[Observations]] | None:
    """By how much the second one's mean cost is above the first one's, its error and the sign of a bound."""
    by_name = {name_of(setting): setting for setting in evidence.settings(workload)}
    samples = [evidence.sample(workload, by_name[name], COST) for name in names]
    known = [numbers for sample in samples if (numbers := moments_of(sample))]
    if len(known) < 2 or all(sample.num_short for sample in samples):
        return None
    (_, low, low_error, _), (_, high, high_error, _) = known
    error = None if low_error is None or high_error is None else (low_error**2 + high_error**2) ** 0.5
    return high - low, error, "≥" if samples[1].num_short else "≤" if samples[0].num_short else "", samples


def _worth(evidence: Evidence, workload: str, pair: PairTest, record: Record) -> bool:
    values, cost = record["values"], _saved(evidence, workload, record["values"]["pair"])
    if cost is None or not pair.told_apart:
        return False
    saved, error, sign, samples = cost
    if (kind := WORTH[saved < 0]) != record["kind"]:
        return False
    sign = sign if kind == WORTH[0] else {"≥": "≤", "≤": "≥"}.get(sign, "")
    good = close(values["mean"], abs(saved), 1e-9, 1e-9) and close(values["standard_error"], error, 1e-6, 1e-9)
    good = good and printed(values["difference"], [abs(saved), error], 1e-6)
    good = good and values["difference"].startswith(f"{sign} " if sign else tuple("0123456789"))
    for text, sample in zip((values["better_usd"], values["worse_usd"]), samples, strict=True):
        expected = moments_of(sample)
        assert expected is not None
        good = good and printed(text, expected[1:3], 1e-9) and text.startswith("≥ ") == bool(sample.num_short)
    return good


def _deciding(evidence: Evidence, workload: str, pair: PairTest, record: Record) -> bool:
    values, key = record["values"], evidence.report["metric"]
    by_name = {name_of(setting): setting for setting in evidence.settings(workload)}
    samples = [evidence.sample(workload, by_name[name], key) for name in values["pair"]]
    first, second = (sample.numbers for sample in samples)
    choice = choice_of(evidence, workload, values["pair"][0])
    if pair.told_apart or pair.corrected is None:
        return False
    misses = any(sample.num_short for sample in samples)
    if record["kind"] == DECIDING[0]:
        more = sum(max(0, values["num_runs"] - len(sample)) for sample in samples)
        good = values["power"] == 0.8 and values["num_more"] == more and not misses
        return good and would_tell(values["num_runs"], first, second, step(key), choice.level)
    if misses:
        return bool(values["why"] == MISSES)
    beyond = pair.factor == 1 or power(MOST_RUNS, first, second, step(key), choice.level) < 0.801
    return bool(values["why"] == EQUALS and beyond)


CHECKS: dict[tuple[str, ...], Callable[[Evidence, str, PairTest, Record], bool]] = {
    VERDICTS: _verdict,
    WORTH: _worth,
    DECIDING: _deciding,
}
