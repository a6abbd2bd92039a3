"""Every printed figure once more, from the run folders' journals, with code that shares nothing with the report's.

What it takes of the report is what the report claims: its tables as they are printed, the figures,
comparisons and sentences' records of its JSON, and which runs it says it averaged. From the journals it works out
for itself which runs count, in which setting, and what their figures are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracking.audit import limit_tables, missing, sentences, stacks, tables
from tracking.audit.arithmetic import (
    EXACT,
    Moments,
    PairTest,
    close,
    marked,
    moments_of,
    printed,
    ratio,
    tolerance,
    wilson,
)
from tracking.audit.evidence import OF_TARGETS, AuditResult, Evidence, computable, name_of

TASK = ("model", "dataset", "target_metric", "target_value")


def audit(report: Mapping[str, Any], roots: Sequence[Path]) -> AuditResult:
    """Compare everything that a report (its JSON) says in numbers with the run folders at or below `roots`."""
    evidence = Evidence(report, roots)
    tally = AuditResult(num_runs=len(evidence.runs))
    without = [run["name"] for run in report["runs"] if run["id"] not in evidence.runs]
    if without:
        words = ", ".join(map(str, roots))
        tally.differences.append(f"no run folder at or below {words} is of {', '.join(without[:5])} ({len(without)})")
        return tally
    _members(evidence, tally)
    _shares(evidence, tally)
    for figure in report["figures"]:
        _figure(figure, evidence, tally)
    _comparisons(evidence, tally)
    _spent(evidence, tally)
    tables.compare(evidence, tally)
    sentences.compare(evidence, tally)
    stacks.compare(evidence, tally)
    missing.compare(evidence, tally)
    return tally


def _members(evidence: Evidence, tally: AuditResult) -> None:
    """Whether each run is of the setting and the workload that the report has it in."""
    tasks: dict[str, set[tuple[Any, ...]]] = {}
    for run_id, run in evidence.runs.items():
        claimed = evidence.claimed[run_id]
        tasks.setdefault(claimed["workload"], set()).add(tuple(run.params.get(key) for key in TASK))
        if isinstance(claimed["setting"], dict) and not run.belongs(claimed["setting"]):
            tally.differences.append(f"{run.folder}: its journal is not of the setting {claimed['setting']}")
    for workload, trained in tasks.items():
        if len(trained) > 1:
            tally.differences.append(f"{workload}: its runs are of several models, datasets or targets: {trained}")


def _figure(figure: Mapping[str, Any], evidence: Evidence, tally: AuditResult) -> None:
    name = f"{figure['workload']}, {name_of(figure['setting'])}: {figure['figure']}"
    of = evidence.measured if figure["over"] is None else evidence.values
    runs = set(of(figure["workload"], figure["setting"], figure["key"]))
    if figure["key"] in OF_TARGETS:
        runs |= set(evidence.short(figure["workload"], figure["setting"]))
    if runs != set(figure["runs"]):
        averaged = f"{len(figure['runs'])} run{'s' * (len(figure['runs']) != 1)}"
        tally.note(False, f"{name}: averages {averaged}, and by their journals {len(runs)} should count")
        return
    expected, bounded = _expected(figure, evidence)
    if expected is None:
        tally.note(False, f"{name}: the journals do not tell")
        return
    claimed = (figure["n"], figure["mean"], figure["standard_error"], figure["olympic_mean"])
    near = tolerance(figure["key"])
    good = all(close(claim, number, near, expected[1]) for claim, number in zip(claimed, expected, strict=True))
    good = good and bounded and printed(figure["text"], expected[1:], near)
    words = f"n, mean, standard error, olympic mean {claimed}, printed as {figure['text']!r}"
    tally.note(good, f"{name}: the report has {words}, the journals {expected}")


def _expected(figure: Mapping[str, Any], evidence: Evidence) -> tuple[Moments | None, bool]:
    """The numbers of a figure, and whether it says rightly if it is a bound."""
    workload = figure["workload"]
    own = evidence.sample(workload, figure["setting"], figure["key"])
    if figure["over"] is None:
        own = evidence.shown(workload, figure["setting"], figure["key"])
        bounded = figure["bound"] == ("≥" if own.num_short else "") and marked(figure["text"], own)
        percent = 100.0 if figure["figure"] in limit_tables.NAMES else 1.0
        return moments_of(own, tables.QUANTITIES.get(figure["figure"], ("", percent))[1]), bounded
    base = evidence.sample(workload, figure["over"], figure["key"])
    mine, other = (evidence.devices(workload, figure[role]) for role in ("setting", "over"))
    assert mine
    assert other
    growth = mine / other if figure["figure"].startswith("efficiency") else 1.0
    quotient = ratio(figure["key"], own, base, growth, figure["setting"] == figure["over"])
    if quotient is None:
        return None, False
    numbers, sign = quotient
    return numbers, figure["bound"] == sign and figure["text"].startswith(f"{sign} " if sign else tuple("0123456789"))


def _shares(evidence: Evidence, tally: AuditResult) -> None:
    """How many runs of each setting reached their target, and the interval of the true share."""
    claims = {(claim["workload"], name_of(claim["setting"])): claim for claim in evidence.report["reached"]}
    for workload in sorted({run["workload"] for run in evidence.claimed.values()}):
        for setting in evidence.settings(workload):
            hits, n = evidence.reached(workload, setting)
            claimed = claims.get((workload, name_of(setting)), {})
            expected = (hits, n, *wilson(hits, n)) if n else (None,) * 4
            given = tuple(claimed.get(key) for key in ("num_reached", "n", "low", "high"))
            good = all(close(claim, number, 1e-6, 1) for claim, number in zip(given, expected, strict=True))
            words = f"{workload}, {name_of(setting)}: reached by {given} in the report, {expected} by the journals"
            tally.note(good, words)


def _comparisons(evidence: Evidence, tally: AuditResult) -> None:
    """The t-test by its formula, and Holm's correction, of every workload's pairs; and which side is the better."""
    claims = evidence.report["comparisons"]
    for workload in dict.fromkeys(pair["workload"] for pair in claims):
        pairs = [pair for pair in claims if pair["workload"] == workload]
        if not computable(pairs[0]["metric"]):
            tally.note(False, f"{workload}: comparisons by {pairs[0]['metric']} cannot be recomputed from journals")
            continue
        expected = evidence.pairs(workload)
        if len(expected) != len(pairs):
            tally.note(False, f"{workload}: compares {len(pairs)} pairs, and there are {len(expected)} by journals")
            continue
        near = max(tolerance(pairs[0]["metric"]), 1e-6)
        for pair in pairs:
            names = [name_of(pair[role]) for role in ("better", "worse")]
            computed = expected[frozenset(names)]
            claimed, numbers = (
                (pair["factor"], pair["p"], pair["p_corrected"]),
                (None if math.isinf(computed.factor) else computed.factor, computed.p, computed.corrected),
            )
            good = all(close(claim, number, near, 1) for claim, number in zip(claimed, numbers, strict=True))
            good &= pair["told_apart"] == computed.told_apart
            good &= _often_holds(pair["reaches_more_often"], computed)
            good &= pair["so"] == sentences.of_pair(evidence, workload, *names)[0]
            good &= names[0] == computed.better or close(computed.factor, 1.0, near, 1)
            words = f"{' is better than '.join(names)} by factor, p, corrected p {claimed}"
            tally.note(good, f"{workload}: {words}; by the journals {computed.better} is, by {numbers}")


def _often_holds(claimed: Mapping[str, Any] | None, computed: PairTest) -> bool:
    if claimed is None or computed.counts is None:
        return claimed is computed.counts
    name = "" if claimed["setting"] is None else name_of(claimed["setting"])
    good = close(claimed["p"], computed.often_p, 1e-6, 1)
    good &= close(claimed["p_corrected"], computed.often_corrected, 1e-6, 1)
    counts = tuple(claimed[key] for key in ("reached", "n", "other_reached", "m"))
    return good and name == computed.more_often and counts in computed.ways


def _spent(evidence: Evidence, tally: AuditResult) -> None:
    for workload, claimed in evidence.report["spent_usd"].items():
        computed = evidence.spent_usd(workload)
        words = f"all its runs cost {claimed} USD in the report, {computed} by the journals"
        tally.note(close(claimed, computed, EXACT, 1.0), f"{workload}: {words}")
