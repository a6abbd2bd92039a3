"""Every printed figure once more, from the run folders' journals, with code that shares nothing with the report's.

What it takes of the report is what the report claims: its tables as they are printed, the figures,
comparisons and sentences' records of its JSON, and which runs it says it averaged. From the journals it works out
for itself which runs count, in which setting, and what their figures are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracking.audit import sentences, tables
from tracking.audit.evidence import (
    EXACT,
    Evidence,
    Moments,
    Outcome,
    close,
    computable,
    moments,
    name_of,
    printed,
    ratio,
    tolerance,
)

TASK = ("model", "dataset", "target_metric", "target_value")


def audit(report: Mapping[str, Any], roots: Sequence[Path]) -> Outcome:
    """Compare everything that a report (its JSON) says in numbers with the run folders at or below `roots`."""
    evidence = Evidence(report, roots)
    outcome = Outcome(num_runs=len(evidence.runs))
    missing = [run["name"] for run in report["runs"] if run["id"] not in evidence.runs]
    if missing:
        words = ", ".join(map(str, roots))
        outcome.differences.append(f"no run folder at or below {words} is of {', '.join(missing[:5])} ({len(missing)})")
        return outcome
    _members(evidence, outcome)
    for figure in report["figures"]:
        _figure(figure, evidence, outcome)
    _comparisons(evidence, outcome)
    _spent(evidence, outcome)
    tables.compare(evidence, outcome)
    sentences.compare(evidence, outcome)
    return outcome


def _members(evidence: Evidence, outcome: Outcome) -> None:
    """Whether each run is of the setting and the workload that the report has it in."""
    tasks: dict[str, set[tuple[Any, ...]]] = {}
    for run_id, run in evidence.runs.items():
        claimed = evidence.claimed[run_id]
        tasks.setdefault(claimed["workload"], set()).add(tuple(run.params.get(key) for key in TASK))
        if isinstance(claimed["setting"], dict) and not run.belongs(claimed["setting"]):
            outcome.differences.append(f"{run.folder}: its journal is not of the setting {claimed['setting']}")
    for workload, trained in tasks.items():
        if len(trained) > 1:
            outcome.differences.append(f"{workload}: its runs are of several models, datasets or targets: {trained}")


def _figure(figure: Mapping[str, Any], evidence: Evidence, outcome: Outcome) -> None:
    name = f"{figure['workload']}, {name_of(figure['setting'])}: {figure['figure']}"
    of = evidence.measured if figure["over"] is None else evidence.values
    values = of(figure["workload"], figure["setting"], figure["key"])
    if set(values) != set(figure["runs"]):
        outcome.note(False, f"{name}: averages {len(figure['runs'])} runs, and {len(values)} count by their journals")
        return
    expected = _expected(figure, evidence, values)
    claimed = (figure["n"], figure["mean"], figure["standard_error"], figure["olympic_mean"])
    near = tolerance(figure["key"])
    good = all(close(one, other, near, expected[1]) for one, other in zip(claimed, expected, strict=True))
    good = good and printed(figure["text"], expected[1:], near)
    words = f"n, mean, standard error, olympic mean {claimed}, printed as {figure['text']!r}"
    outcome.note(good, f"{name}: the report has {words}, the journals {expected}")


def _expected(figure: Mapping[str, Any], evidence: Evidence, values: Mapping[str, float]) -> Moments:
    if figure["over"] is None:
        scale = tables.QUANTITIES.get(figure["figure"], ("", 1.0))[1]
        return moments([scale * value for value in values.values()])
    workload = figure["workload"]
    base = evidence.values(workload, figure["over"], figure["key"])
    own, other = (evidence.devices(workload, figure[role]) for role in ("setting", "over"))
    assert own
    assert other
    return ratio(figure["key"], values, base, own / other if figure["figure"].startswith("efficiency") else 1.0)


def _comparisons(evidence: Evidence, outcome: Outcome) -> None:
    """The t-test by its formula, and Holm's correction, of every workload's pairs; and which side is the better."""
    claims = evidence.report["comparisons"]
    for workload in dict.fromkeys(pair["workload"] for pair in claims):
        pairs = [pair for pair in claims if pair["workload"] == workload]
        if not computable(pairs[0]["metric"]):
            outcome.note(False, f"{workload}: comparisons by {pairs[0]['metric']} cannot be recomputed from journals")
            continue
        expected = evidence.pairs(workload, evidence.settings(workload))
        if len(expected) != len(pairs):
            outcome.note(False, f"{workload}: compares {len(pairs)} pairs, and there are {len(expected)} by journals")
            continue
        near = max(tolerance(pairs[0]["metric"]), 1e-6)
        for pair in pairs:
            names = [name_of(pair[role]) for role in ("better", "worse")]
            found = expected[frozenset(names)]
            claimed, numbers = (
                (pair["factor"], pair["p"], pair["p_corrected"]),
                (found.factor, found.p, found.corrected),
            )
            good = all(close(one, other, near, 1) for one, other in zip(claimed, numbers, strict=True))
            good &= pair["told_apart"] == found.told_apart
            good &= pair["so"] == sentences.of_pair(evidence, workload, *names)[0]
            good &= names[0] == found.better or close(found.factor, 1.0, near, 1)
            words = f"{' is better than '.join(names)} by factor, p, corrected p {claimed}"
            outcome.note(good, f"{workload}: {words}; by the journals {found.better} is, by {numbers}")


def _spent(evidence: Evidence, outcome: Outcome) -> None:
    for workload, claimed in evidence.report["spent_usd"].items():
        computed = evidence.spent_usd(workload)
        words = f"all its runs cost {claimed} USD in the report, {computed} by the journals"
        outcome.note(close(claimed, computed, EXACT, 1.0), f"{workload}: {words}")
