"""The best setting of a workload, and the best stack of settings with equal other axes, from the journals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tracking.analysis.audit import comparisons
from tracking.analysis.audit.arithmetic import Observations, factor_bounds, level, moments_of, tolerance, would_tell
from tracking.analysis.audit.comparisons import Verdicts
from tracking.analysis.audit.evidence import Evidence, Labels, Near, That, is_stack, name_of
from tracking.base import quantities

COST = quantities.COST_TO_ACCURACY_USD


def identity(record: Mapping[str, Any]) -> str:
    among = record.get("among")
    return str(record.get("workload")) if among is None else f"{record.get('workload')}, stacks of {name_of(among)}"


def expected(evidence: Evidence, report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The expected records by identity: the best setting of each workload, and the best stack of each family."""
    claimed = {identity(record): record for record in report["best"] if isinstance(record, Mapping)}
    expected = {}
    for workload in evidence.workloads():
        verdicts = comparisons.verdicts(evidence, workload, report)
        families: dict[str, tuple[Labels | None, list[str]]] = {"": (None, list(verdicts.settings))}
        for name, setting in verdicts.settings.items() if any(map(is_stack, evidence.axes)) else ():
            others = {axis: value for axis, value in setting.items() if not is_stack(axis)}
            families.setdefault(f"stacks {name_of(others)}", (others, []))[1].append(name)
        for among, names in families.values():
            about = {"workload": workload, "among": None if among is None else dict(among)}
            if record := _best(verdicts, names, about, claimed.get(identity(about), {})):
                expected[identity(about)] = about | record
    return expected


def _best(
    verdicts: Verdicts, names: list[str], about: Mapping[str, Any], claimed: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The expected record of the best of these settings. If some are equal, the report's leader and next are used."""
    evidence, key, settings = verdicts.evidence, verdicts.evidence.metric, verdicts.settings
    samples = {name: evidence.sample(verdicts.workload, settings[name], key) for name in names}
    measured = [name for name in names if len(samples[name])]
    if not any(samples[name].numbers for name in measured) or (about["among"] is not None and len(measured) < 2):
        return None
    if evidence.better(verdicts.workload, key) is None:
        return None
    num_tested = sum(len(samples[name]) > 1 for name in measured)
    pairs = {both: pair for both, pair in verdicts.pairs.items() if both <= set(measured)}
    behind = {
        verdicts.worse(both)
        for both, pair in pairs.items()
        if pair.p is not None and pair.p * max(1, num_tested - 1) < 0.05
    }
    race = [name for name in measured if name not in behind] or measured
    called = {name: sum(pair.better == name for pair in pairs.values()) for name in race}
    leaders = [name for name in race if called[name] == max(called.values())]
    leader = _chosen(claimed.get("leader"), leaders)
    return {
        "leader": _one_of(leaders, settings),
        "candidates": That(
            lambda listed: len(listed) == len(race) and {*map(name_of, listed)} == {*race}, f"{race}"
        ),
        "num_tested": num_tested,
        **_lead(verdicts, leader, [name for name in measured if name != leader], samples, num_tested, claimed),
        **_runner_up(verdicts, leader, samples, claimed, about["among"] is not None),
        **_undecided(verdicts, leader, race, samples, num_tested, claimed, about["among"] is not None),
    }  # fmt: skip


def _chosen(claimed: Any, names: list[str]) -> str:
    return name_of(claimed) if name_of(claimed) in names else names[0]


def _one_of(names: list[str], settings: Mapping[str, Labels]) -> That:
    return That(lambda claimed: any(claimed == settings[name] for name in names), " or ".join(names))


def _lead(
    verdicts: Verdicts, leader: str, others: list[str], samples: Mapping[str, Observations], num_tested: int,
    claimed: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The leader's p-value, and the bounds of its factor over the next setting."""
    near = tolerance(verdicts.evidence.metric)
    pairs = [verdicts.pairs[frozenset((leader, other))] for other in others]
    p_values = [pair.p if pair.better == leader else 1.0 for pair in pairs]
    tested = [p for p in p_values if p is not None]
    p = min(1.0, max(tested) * max(1, num_tested - 1)) if tested and len(tested) == len(pairs) else None
    direction = verdicts.evidence.better(verdicts.workload, verdicts.evidence.metric) or ""
    following = _nearest(verdicts, leader, samples.keys())
    other = _chosen(claimed.get("next"), following) if following else leader
    bounds = None
    if other != leader and not verdicts.searched(leader) and not verdicts.searched(other):
        bounds = factor_bounds(direction, samples[leader], samples[other], level(num_tested))
    low, high = bounds or (None, None)
    off = 1e-2 if near > 1e-6 else 1e-6  # Rates are journaled rounded, which changes a small spread.
    return {
        "p_corrected": comparisons.p_value(p, near),
        "low": Near(low, off),
        "high": Near(None if high is None or math.isinf(high) else high, off),
    }


def _runner_up(
    verdicts: Verdicts, leader: str, samples: Mapping[str, Observations], claimed: Mapping[str, Any], of_stacks: bool
) -> dict[str, Any]:
    """The runner-up: the factor, and what the lead saves."""
    near = tolerance(verdicts.evidence.metric)
    names = _nearest(verdicts, leader, samples.keys())
    if not names:
        return {"next": None, "factor": None, "factor_bound": "", "saved_usd": None}
    other = _chosen(claimed.get("next"), names)
    pair = verdicts.pairs[frozenset((leader, other))]
    return {
        "next": _one_of(names, verdicts.settings),
        "factor": Near(None if math.isinf(pair.factor) else pair.factor, max(near, 1e-6)),
        "factor_bound": comparisons.sign_of(pair, samples[verdicts.worse(frozenset((leader, other)))]),
        "saved_usd": _saved(verdicts, leader, other) if of_stacks else None,
    }


def _undecided(
    verdicts: Verdicts, leader: str, race: list[str], samples: Mapping[str, Observations], num_tested: int,
    claimed: Mapping[str, Any], of_stacks: bool,
) -> dict[str, Any]:  # fmt: skip
    """The closest other candidate, and for stacks how many runs would tell it from the leader."""
    names = _nearest(verdicts, leader, race)
    if not names:
        return {"undecided": None, "runs_that_would_tell": None}
    both = frozenset((leader, _chosen(claimed.get("undecided"), names)))
    pair, needed = verdicts.pairs[both], None
    if of_stacks and pair.p is not None:
        needed = would_tell(samples[pair.better], samples[verdicts.worse(both)], level(num_tested))
    runs = comparisons.runs(needed, tolerance(verdicts.evidence.metric))
    return {"undecided": _one_of(names, verdicts.settings), "runs_that_would_tell": runs}


def _nearest(verdicts: Verdicts, leader: str, among: Iterable[str]) -> list[str]:
    """The settings `among` that the leader loses to, else leads least; several if they are as close."""
    listed, near = {*among}, tolerance(verdicts.evidence.metric)
    pairs = {both: pair for both, pair in verdicts.pairs.items() if leader in both and both <= {leader, *listed}}
    order = {both: (pair.better == leader, pair.factor, -(pair.p or 0.0)) for both, pair in pairs.items()}
    least = min(order.values(), default=(False, 0.0, 0.0))
    close = [both for both, place in order.items() if place[0] == least[0] and _close(place[1:], least[1:], near)]
    return [next(iter(both - {leader})) for both in close]


def _close(place: tuple[float, float], least: tuple[float, float], near: float) -> bool:
    return all(a == b or math.isclose(a, b, rel_tol=max(near, 1e-9)) for a, b in zip(place, least, strict=True))


def _saved(verdicts: Verdicts, leader: str, other: str) -> dict[str, Any] | None:
    """The other's mean cost minus the leader's, with its error and the sign of a bound; None if not known."""
    evidence, settings = verdicts.evidence, verdicts.settings
    more, less = (evidence.sample(verdicts.workload, settings[name], COST) for name in (other, leader))
    known = [moments for sample in (more, less) if (moments := moments_of(sample))]
    if len(known) < 2 or (more.num_short and less.num_short):
        return None
    (_, high, high_error, _), (_, low, low_error, _) = known
    error = None if high_error is None or low_error is None else math.hypot(high_error, low_error)
    bound = "≥" if more.num_short else "≤" if less.num_short else ""
    return {"mean": Near(high - low, 1e-6, high), "standard_error": Near(error, 1e-6), "bound": bound}
