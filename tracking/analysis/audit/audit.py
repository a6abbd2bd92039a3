"""Recompute every number of a report from the run folders' journals, with code that is independent of the report's.

The report gives its selectors, axes and metric. All its other numbers and labels, and its answer, are recomputed and
compared value by value. Other sentences are not checked: `WORDS` names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracking.analysis.audit import answers, bests, comparisons, factors, figures, searches, table_cells
from tracking.analysis.audit.arithmetic import EXACT, wilson
from tracking.analysis.audit.evidence import UNCHECKED, AuditResult, Evidence, Near, That, by_identity, compare, name_of

# A report's words, which are not checked: one formatter makes them from the numbers. Two kinds of sentences are checked
# all the same: those of the answer, and those on the parts of a time, whose numbers are in no table.
WORDS = ("title", "source", "warnings", "sentences")
ASKED = {"selectors": list, "by": list, "metric": str, "with_missed": bool, "with_neighbours": bool, "within": list,
         "over": dict, "searched": list}  # fmt: skip
ANSWERS = {"answer": str, "headlines": list}
SECTIONS = ("runs", "excluded", "left_out", "spent_usd", "reached", "figures", "comparisons", "best", "tables")


def audit(report: Mapping[str, Any], roots: Sequence[Path]) -> AuditResult:
    """Compare all numbers of a report (its JSON) with the run folders at or below `roots`."""
    return audited(report, roots)[0]


def audited(report: Mapping[str, Any], roots: Sequence[Path]) -> tuple[AuditResult, Evidence | None]:
    """The differences, and the journals (None if parts of the report or folders of its runs are missing)."""
    tally = AuditResult()
    report = {"within": [], "over": {}, **report}  # older reports lack unused options
    _shape(report, tally)
    if tally.differences:
        return tally, None
    evidence = Evidence(report, roots)
    tally.num_runs = len(evidence.runs)
    _check_selection(report, evidence, roots, tally)
    if evidence.unknown:
        return tally, None
    _sections(report, evidence, tally)
    return tally, evidence


def _shape(report: Mapping[str, Any], tally: AuditResult) -> None:
    """Note the parts that are missing, and those that cannot be recomputed."""
    for key, kind in ASKED.items():
        tally.note(isinstance(report.get(key), kind), f"{key}: the report has {report.get(key)!r}. Next: make it again")
    for key in SECTIONS:
        kinds = dict if key == "spent_usd" else list
        tally.note(isinstance(report.get(key), kinds), f"the report has no {key}. Next: make it again")
    for key, kind in ANSWERS.items():
        tally.note(isinstance(report.get(key), kind), f"the report has no {key}. Next: make it again")
    for key in report.keys() - {*WORDS, *ASKED, *ANSWERS, *SECTIONS}:
        tally.note(False, f"{key}: a part of this name cannot be recomputed")


def _check_selection(report: Mapping[str, Any], evidence: Evidence, roots: Sequence[Path], tally: AuditResult) -> None:
    """Note selected runs that are missing, runs that are not selected, and labels that differ from configs."""
    where = ", ".join(map(str, roots))
    for selector in evidence.nameless:
        tally.note(False, f"{selector}: no such run folder in {where}")
    names = {str(run.get("uid")): run.get("name") for run in [*report["runs"], *report["excluded"]]}
    for uid in sorted(evidence.unknown):
        tally.note(False, f"{names[uid]}: its run folder is not in {where}")
    for uid, run in evidence.should.items():
        tally.note(uid in names, f"{run.name}: missing in the report, but in {' '.join(report['selectors'])}")
    for uid, run in evidence.runs.items():
        is_selected = uid in evidence.should or bool(evidence.nameless)
        tally.note(is_selected, f"{run.name}: in the report, but not in {' '.join(report['selectors'])}")
        for key, value in run.configured.items():
            journaled = str(run.params.get(key, ""))
            tally.note(journaled == value, f"{run.name}: its journal has {key}={journaled}, its config.yaml {value}")
    left_out = by_identity(tally, "left out", report["left_out"], lambda run: str(run.get("uid")))
    expected = {
        uid: {"id": _id_of(evidence, uid), "uid": uid, "name": evidence.folders[uid].name, "why": why}
        for uid, why in evidence.left_out.items()
    }
    compare(tally, "left out", left_out, expected)


def _sections(report: Mapping[str, Any], evidence: Evidence, tally: AuditResult) -> None:
    for part, expected in (("runs", _runs(evidence)), ("excluded", _excluded(evidence))):
        claimed = by_identity(tally, part, report[part], lambda run: str(run.get("uid")))
        named = {uid: record.get("name", uid) for uid, record in [*claimed.items(), *expected.items()]}
        for uid, name in named.items():
            compare(tally, f"{part}: {name}", claimed.get(uid, "nothing"), expected.get(uid, "nothing"))
    spent = {workload: Near(evidence.spent_usd(workload), EXACT, 1.0) for workload in evidence.workloads()}
    compare(tally, "spent_usd", report["spent_usd"], spent)
    compare(tally, "reached", by_identity(tally, "reached", report["reached"], _place), _reached(evidence))
    printed = by_identity(tally, "figures", report["figures"], figures.identity)
    expected = figures.expected(evidence)
    expected = {name: figures.as_printed(printed.get(name, {}), record) for name, record in expected.items()}
    compare(tally, "figures", printed, expected)
    pairs = by_identity(tally, "comparisons", report["comparisons"], comparisons.identity)
    compare(tally, "comparisons", pairs, comparisons.expected(evidence, report))
    _check_factors(report, tally)
    best = by_identity(tally, "best", report["best"], bests.identity)
    compare(tally, "best", best, bests.expected(evidence, report))
    table_cells.compare(report, evidence, tally)
    try:
        searches.check(report, evidence, tally)
        answers.check(report, evidence, tally)
    except (LookupError, TypeError, AttributeError, ValueError, AssertionError):  # The report was altered.
        tally.note(False, "answer: does not follow from the report's numbers")


def _check_factors(report: Mapping[str, Any], tally: AuditResult) -> None:
    """Compare the sentences on the parts of times with the numbers of `comparisons`."""
    try:
        claimed = [sentence for sentence in report["sentences"] if sentence["kind"] == "factors"]
        expected = factors.sentences(report)
    except (LookupError, TypeError, AttributeError, ValueError):  # The report was altered, as noted before.
        tally.note(False, "sentences: those on the parts of times do not follow from the comparisons")
        return
    compare(tally, "sentences", by_identity(tally, "sentences", claimed, factors.identity), expected)


def _place(record: Mapping[str, Any]) -> str:
    return f"{record.get('workload')}, {name_of(record.get('setting'))}"


def _id_of(evidence: Evidence, uid: str) -> That:
    return That(lambda run_id: evidence.uid_of(run_id) == uid, " or ".join(sorted(evidence.folders[uid].ids)))


def _runs(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """The runs that are in every mean."""
    return {
        uid: _known(evidence, uid) | {"setting": {axis: run.label(axis) for axis in evidence.axes}}
        for uid, run in evidence.runs.items()
        if evidence.counts(run)
    }


def _excluded(evidence: Evidence) -> dict[str, dict[str, Any]]:
    return {
        uid: _known(evidence, uid)
        | {"setting": name_of({axis: run.label(axis) for axis in evidence.axes}), "why": evidence.why(run)}
        for uid, run in evidence.runs.items()
        if not evidence.counts(run)
    }


def _known(evidence: Evidence, uid: str) -> dict[str, Any]:
    run = evidence.runs[uid]
    return {"id": _id_of(evidence, uid), "uid": uid, "name": run.name, "workload": run.title}


def _reached(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """How many runs of each setting reached their target, and the interval of the true share."""
    records = []
    for workload in evidence.workloads():
        for setting in evidence.settings(workload):
            hits, n = evidence.reached(workload, setting)
            low, high = (Near(bound, 1e-6, 1.0) for bound in wilson(hits, n)) if n else (None, None)
            numbers = {"num_reached": hits, "n": n, "low": low, "high": high} if n else {}
            records.append({"workload": workload, "setting": dict(setting), **numbers})
    return {_place(record): record for record in records}


__all__ = ["UNCHECKED", "WORDS", "AuditResult", "audit"]
