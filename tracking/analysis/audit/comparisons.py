"""The comparisons of all pairs of settings by the report's metric, from the journals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracking.analysis.audit import factors
from tracking.analysis.audit.arithmetic import Observations, PairTest, Wanted, tolerance, would_tell
from tracking.analysis.audit.evidence import AuditResult, Evidence, Labels, Near, That, compare, name_of

COUNTS = ("reached", "n", "other_reached", "m", "horizon")


@dataclass(frozen=True)
class Verdicts:
    """The pairs of one workload, by their names. If two settings are equal, the report's better one is used."""

    evidence: Evidence
    workload: str
    pairs: Mapping[frozenset[str], PairTest]

    @property
    def settings(self) -> dict[str, Labels]:
        return {name_of(setting): setting for setting in self.evidence.settings(self.workload)}

    def searched(self, name: str) -> bool:
        return bool(self.evidence.searched(self.workload, self.settings[name]))

    def worse(self, names: frozenset[str]) -> str:
        (name,) = names - {self.pairs[names].better}
        return name


def verdicts(evidence: Evidence, workload: str, report: Mapping[str, Any]) -> Verdicts:
    called = {
        frozenset(name_of(pair.get(role)) for role in ("better", "worse")): name_of(pair.get("better"))
        for pair in report["comparisons"]
        if isinstance(pair, Mapping) and pair.get("workload") == workload
    }
    pairs = {
        names: pair.turned if pair.turned is not None and pair.turned.better == called.get(names) else pair
        for names, pair in evidence.pairs(workload).items()
    }
    return Verdicts(evidence, workload, pairs)


def identity(pair: Mapping[str, Any]) -> str:
    names = sorted(name_of(pair.get(role)) for role in ("better", "worse"))
    return f"{pair.get('workload')}: {' and '.join(names)}"


def expected(evidence: Evidence, report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The expected records by identity: all pairs of settings that both have a value of the metric."""
    records = []
    for workload in evidence.workloads():
        of_workload = verdicts(evidence, workload, report)
        parts = factors.parts(evidence, workload, of_workload.pairs)
        records += [
            _record(of_workload, names) | {"parts": factors.plain(parts.get(names))} for names in of_workload.pairs
        ]
    return {identity(record): record for record in records}


def _record(verdicts: Verdicts, names: frozenset[str]) -> dict[str, Any]:
    pair, settings, metric = verdicts.pairs[names], verdicts.settings, verdicts.evidence.metric
    sides = [pair.better, verdicts.worse(names)]
    near = tolerance(metric)
    num_tests = sum(other.p is not None for other in verdicts.pairs.values())
    better, worse = (verdicts.evidence.sample(verdicts.workload, settings[name], metric) for name in sides)
    level = 0.05 / 2 / max(1, num_tests)
    needed = None if pair.told_apart or pair.p is None else would_tell(better, worse, level)
    return {
        "workload": verdicts.workload,
        "metric": metric,
        "better": dict(settings[sides[0]]),
        "worse": dict(settings[sides[1]]),
        "factor": Near(None if math.isinf(pair.factor) else pair.factor, max(near, 1e-6)),
        "factor_bound": sign_of(pair, worse),
        "paired": pair.paired,
        "p": p_value(pair.p, near),
        "p_corrected": p_value(pair.corrected, near),
        "told_apart": pair.told_apart,
        "reaches_more_often": _often(pair, settings),
        "runs_that_would_tell": runs(needed, near),
        "so": _said(sign_of(pair, worse)),
    }


def sign_of(pair: PairTest, worse: Observations) -> str:
    """The sign of a factor that is only a lower bound: runs of the worse setting did not reach the target."""
    return "≥" if worse.num_short and math.isfinite(pair.factor) else ""


def _said(sign: str) -> That:
    """Accepts words that say `at least` before a factor if it is a lower bound, and only then."""
    of = "by a factor of"
    return That(lambda text: of not in text or (f"{of} at least " in text) is bool(sign), f"words with {sign or '='}")


def p_value(value: float | None, near: float) -> Near:
    """Accepts a p-value near `value`: rates are journaled rounded, which shifts it if they scatter little."""
    return Near(value, max(100 * near, 1e-6), 1e-6)


def runs(needed: Wanted | None, near: float) -> Any:
    """How many runs would tell; to 1 % for rates, which are journaled rounded."""
    if needed is None:
        return None
    off = 0.01 if near > 1e-6 else 1e-9
    most = needed.most or (None, None)
    numbers = {"better": needed.better, "worse": needed.worse, "most_better": most[0], "most_worse": most[1]}
    return {name: Near(number, off) for name, number in numbers.items()}


def _often(pair: PairTest, settings: Mapping[str, Labels]) -> dict[str, Any] | That | None:
    if pair.counts is None:
        return None
    setting = settings.get(pair.more_often)
    numbers: dict[str, Any] = {"p": Near(pair.often_p, 1e-6), "p_corrected": Near(pair.often_corrected, 1e-6)}
    expected = {"setting": None if setting is None else dict(setting), **numbers}
    ways = [dict(zip(COUNTS, (*way[:4], Near(way[4] if math.isfinite(way[4]) else None, 1e-9)), strict=True))
            for way in pair.ways]  # fmt: skip
    if len(ways) == 1:
        return expected | ways[0]

    def either(claimed: Any) -> bool:
        """Whether the counts begin with either side: both are right if their p-values are equal."""
        tallies = [AuditResult() for _ in ways]
        for tally, way in zip(tallies, ways, strict=True):
            compare(tally, "", claimed, expected | way)
        return any(not tally.differences for tally in tallies)

    return That(either, f"{expected}, counted as {ways}")
