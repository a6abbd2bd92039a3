"""Which settings can be told apart, from the journals: every pair of a workload, by the report's metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracking.audit.arithmetic import PairTest, tolerance
from tracking.audit.evidence import Evidence, Labels
from tracking.audit.trees import UNCHECKED, AuditResult, Near, That, compare, name_of

COUNTS = ("reached", "n", "other_reached", "m")
EQUAL = 1e-12  # means are, whose factor exceeds one by less


def identity(pair: Mapping[str, Any]) -> str:
    names = sorted(name_of(pair.get(role)) for role in ("better", "worse"))
    return f"{pair.get('workload')}: {' and '.join(names)}"


def expected(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """By what tells them apart, all pairs of settings of which something is known."""
    records = [
        _record(evidence, workload, pair, [by_name[name] for name in names])
        for workload in evidence.workloads()
        for by_name in [{name_of(setting): setting for setting in evidence.settings(workload)}]
        for names, pair in evidence.pairs(workload).items()
    ]
    return {identity({**record, **record.pop("sides")}): record for record in records}


def _record(evidence: Evidence, workload: str, pair: PairTest, sides: list[Labels]) -> dict[str, Any]:
    near = tolerance(evidence.metric)
    better, worse = sorted(sides, key=lambda setting: name_of(setting) != pair.better)
    is_tie = pair.factor - 1 <= max(near, EQUAL)  # Of equals either may be called the better one.
    return {
        "workload": workload,
        "metric": evidence.metric,
        "better": That(lambda claimed: claimed in sides, "either") if is_tie else dict(better),
        "worse": That(lambda claimed: claimed in sides, "the other") if is_tie else dict(worse),
        "factor": Near(None if math.isinf(pair.factor) else pair.factor, max(near, 1e-6)),
        "p": p_value(pair.p, near),
        "p_corrected": p_value(pair.corrected, near),
        "told_apart": pair.told_apart,
        "reaches_more_often": _often(pair, sides),
        "so": UNCHECKED,
        "sides": {"better": sides[0], "worse": sides[1]},
    }


def p_value(value: float | None, near: float) -> Near:
    """Rates are journaled rounded, which shifts the p-value of two that hardly scatter."""
    return Near(value, max(100 * near, 1e-6), 1e-6)


def _often(pair: PairTest, sides: list[Labels]) -> dict[str, Any] | That | None:
    if pair.counts is None:
        return None
    named = {name_of(setting): dict(setting) for setting in sides}
    numbers: dict[str, Any] = {"p": Near(pair.often_p, 1e-6), "p_corrected": Near(pair.often_corrected, 1e-6)}
    expected = {"setting": named.get(pair.more_often), **numbers}
    if len(pair.ways) == 1:
        return expected | dict(zip(COUNTS, pair.counts, strict=True))

    def either(claimed: Any) -> bool:
        tally = AuditResult()
        compare(tally, "", {key: value for key, value in claimed.items() if key not in COUNTS}, expected)
        return not tally.differences and tuple(claimed[key] for key in COUNTS) in pair.ways

    return That(either, f"{expected}, counted as {pair.ways}")
