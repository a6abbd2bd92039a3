"""The parts of a pair's times, from the journals: evaluations to the target x the time of an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from tracking.analysis.audit.arithmetic import Observations, PairTest, corrected, difference_p
from tracking.analysis.audit.evidence import UNCHECKED, Evidence, Labels, Near, That, name_of
from tracking.base import quantities
from tracking.base.number_text import significant

TIME = quantities.TIME_TO_ACCURACY_SEC
P_VALUES = ("p_rate", "p_evaluations")
INTERVAL, UNEVEN = "eval_interval_samples", ("eval_after_samples", "eval_at_epochs")
SAID = " times the rate ("


@dataclass(frozen=True)
class Parts:
    """The factors by which the better setting of a pair has more, with two-sided p-values."""

    rate: float
    evaluations: float
    p_rate: float | None
    p_evaluations: float | None


def parts(evidence: Evidence, workload: str, pairs: Mapping[frozenset[str], PairTest]) -> dict[frozenset[str], Parts]:
    """The parts of each pair whose runs all reached the target and recorded their evaluations to it, evenly spaced.

    Their p-values are corrected by Holm.
    """
    if evidence.metric != TIME:
        return {}
    sides = {name_of(setting): _sides(evidence, workload, setting) for setting in evidence.settings(workload)}
    left_out = {
        name_of(each)
        for each in evidence.settings(workload)
        if evidence.searched(workload, each) or evidence.sample(workload, each, TIME).num_short
    }
    by_pair = {}
    for names, pair in pairs.items():
        (better, evaluations), (worse, others) = sides[pair.better], sides[next(iter(names - {pair.better}))]
        if names & left_out or not _evenly(evidence, workload, names):
            continue
        if better.numbers and worse.numbers and fmean(better.numbers) > 0:
            rate = fmean(worse.numbers) / fmean(better.numbers)
            number = fmean(evaluations.numbers) / fmean(others.numbers)
            by_pair[names] = Parts(rate, number, difference_p(better, worse), difference_p(evaluations, others))
    rates, numbers = (
        sorted(p for each in by_pair.values() if (p := getattr(each, name)) is not None) for name in P_VALUES
    )
    return {
        names: replace(each, p_rate=_holm(rates, each.p_rate), p_evaluations=_holm(numbers, each.p_evaluations))
        for names, each in by_pair.items()
    }


def _evenly(evidence: Evidence, workload: str, names: frozenset[str]) -> bool:
    """Whether all runs of the settings with these names were evaluated at the same, even spacing."""
    settings = [each for each in evidence.settings(workload) if name_of(each) in names]
    params = [run.params for each in settings for run in evidence.ended(workload, each).values()]
    samples = [float(each.get(INTERVAL) or 0) for each in params]
    return not any(each.get(key) for each in params for key in UNEVEN) and max(samples) <= 1.05 * min(samples)


def _holm(ranked: Sequence[float], p: float | None) -> float | None:
    return None if p is None else corrected(ranked, p)


def _sides(evidence: Evidence, workload: str, setting: Labels) -> tuple[Observations, Observations]:
    """The seconds from one evaluation to the next, and the numbers of evaluations (of older runs: of epochs)."""
    numbers, intervals = [], []
    for run in sorted(evidence.ended(workload, setting).values(), key=lambda run: run.paired_by):
        number = run.value(quantities.EVALUATIONS_TO_ACCURACY) or run.value(quantities.EPOCHS_TO_ACCURACY)
        if number and (time := run.value(TIME)) is not None:
            numbers.append(number)
            intervals.append(time / number)
    whole = evidence.sample(workload, setting, TIME)
    seeds = whole.seeds if len(whole) == len(numbers) else ()
    return Observations(intervals, seeds=seeds), Observations(numbers, interval=1.0, seeds=seeds)


def plain(of_pair: Parts | None) -> dict[str, Near] | None:
    """The parts as in a comparison of report.json."""
    if of_pair is None:
        return None
    return {
        "rate": Near(of_pair.rate, 1e-6), "p_rate": Near(of_pair.p_rate, 1e-6, 1e-6),
        "evaluations": Near(of_pair.evaluations, 1e-6), "p_evaluations": Near(of_pair.p_evaluations, 1e-6, 1e-6),
    }  # fmt: skip


def said_in(claimed: Mapping[str, Any] | None, better: str) -> That:
    """Accepts a verdict whose words have exactly these parts, as printed from report.json."""
    expected = "" if claimed is None else _words(claimed, better)

    def holds(text: Any) -> bool:
        times = text.count(SAID)
        return times == 0 if claimed is None else times == 1 and expected in text

    return That(holds, f"words with {expected!r}" if expected else "words without a rate")


def _words(claimed: Mapping[str, Any], better: str) -> str:
    sure, rate, number = _sure(claimed), claimed["rate"], claimed["evaluations"]
    rates, evaluations = f"{significant(rate)} times the rate", f"{significant(number)} times the evaluations"
    return f"{better} has {rates} ({sure[0]}) and takes {evaluations} ({sure[1]})"


def _sure(claimed: Mapping[str, Any]) -> list[str]:
    return ["one run a side" if claimed[name] is None else f"p = {claimed[name]:.2g}" for name in P_VALUES]


def sentences(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The expected sentences on parts, by identity, made from the numbers in `comparisons`."""
    expected = {}
    for record in report["comparisons"]:
        claimed, names = record["parts"], [name_of(record[role]) for role in ("better", "worse")]
        if claimed is not None:
            sure = dict(zip(("of_rate", "of_evaluations"), _sure(claimed), strict=True))
            values = {"better": names[0], "worse": names[1], **claimed, **sure}
            text = f"; {_words(claimed, names[0])}"
            made = {"kind": "factors", "workload": record["workload"], "values": values, "template": UNCHECKED}
            expected[identity(made)] = made | {"text": text}
    return expected


def identity(sentence: Mapping[str, Any]) -> str:
    values = sentence.get("values") or {}
    return f"{sentence.get('workload')}: {values.get('better')} and {values.get('worse')}"
