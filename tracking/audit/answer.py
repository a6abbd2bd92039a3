"""The answer of a report, its two sentences a workload, against the journals."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tracking.audit.evidence import (
    Evidence,
    Labels,
    Outcome,
    computable,
    is_rate,
    moments,
    name_of,
    printed,
    significant,
    tolerance,
)

FIGURE = r"(?P<figure>.+?)"


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Compare what is said of each workload: the best setting, from which it can be told, the cost, and the runs."""
    answer = evidence.report["answer"]
    titles = sorted({one["workload"] for one in evidence.claimed.values()})
    starts = [answer.find(f"{title}: ") for title in titles]
    for title, start in zip(titles, starts, strict=True):
        end = min((one for one in starts if one > start), default=len(answer))
        said = answer[start:end].removeprefix(f"{title}: ").strip()
        outcome.note(start >= 0 and _holds(evidence, title, said), f"{title}: the journals do not say that {said!r}")


def _holds(evidence: Evidence, title: str, said: str) -> bool:
    key = evidence.report["metric"]
    settings = [one for one in evidence.settings(title) if evidence.values(title, one, key)]
    if not settings:
        return said == f"no run counts that has {key}." or not computable(key)
    found = re.fullmatch(rf"{re.escape(key)} is {FIGURE} \(n = (?P<n>\d+)\) with (?P<rest>.*)", said, re.DOTALL)
    if not found:
        return False
    for leader in _best(evidence, title, settings, key):
        values = [*evidence.values(title, leader, key).values()]
        good = int(found["n"]) == len(values) and printed(found["figure"], moments(values)[1:], tolerance(key))
        first = _first(evidence, title, settings, leader, found["rest"])
        if good and first is not None and _second(evidence, title, found["rest"][first:].strip()):
            return True
    return False


def _best(evidence: Evidence, title: str, settings: Sequence[Labels], key: str) -> list[Labels]:
    """The settings with the best mean: several only where they are equal."""
    means = [moments([*evidence.values(title, one, key).values()])[1] for one in settings]
    chosen = max(means) if is_rate(key) else min(means)
    return [one for one, mean in zip(settings, means, strict=True) if math.isclose(mean, chosen, rel_tol=1e-12)]


def _first(evidence: Evidence, title: str, settings: Sequence[Labels], leader: Labels, said: str) -> int | None:
    """Where the first sentence ends, behind the figure; None where it says anything else than the journals."""
    name = name_of(leader)
    pairs = {
        other: pair for both, pair in evidence.pairs(title, settings).items() if name in both for other in both - {name}
    }
    tied = {other for other, pair in pairs.items() if not pair.told_apart}
    if not pairs:
        expected = f"{name}, the only setting that has it."
        return len(expected) if said.startswith(expected) else None
    if tied:
        expected = f"{name}, the best mean, but it cannot be told apart from "
        end = re.match(r"(?P<names>.*?)(?: and (?P<more>\d+) more)?\.(?= T|$)", said.removeprefix(expected))
        if not said.startswith(expected) or not end:
            return None
        named = {one for one in tied if one in end["names"].split(", ")}
        return len(expected) + end.end() if len(named) + int(end["more"] or 0) == len(tied) else None
    others = "the only other" if len(pairs) == 1 else f"all {len(pairs)} others"
    least = " at least" if len(pairs) > 1 else ""
    found = re.match(rf"{re.escape(f'{name}, better than {others} by a factor of ')}(\S+){least}\.", said)
    factor = min(pair.factor for pair in pairs.values())
    near = max(tolerance(evidence.report["metric"]), 1e-6)
    return found.end() if found and significant(found[1], factor, 3, near) else None


def _second(evidence: Evidence, title: str, said: str) -> bool:
    members = evidence.members(title)
    counting = sum(evidence.counts(evidence.runs[run_id]) for run_id in members)
    total = sum(one["workload"] == title for one in evidence.claimed.values())
    key = "cost/to_accuracy_usd"
    settings = [one for one in evidence.settings(title) if evidence.values(title, one, key)]
    if not settings:
        return said == f"This rests on {counting} of {total} runs; in no mean: {total - counting}."
    cheapest = {name_of(one): one for one in _best(evidence, title, settings, key)}
    names = "|".join(map(re.escape, cheapest))
    pattern = (
        rf"The lowest mean cost to accuracy is {FIGURE} USD, with (?P<name>{names}); this rests on "
        rf"{counting} of {total} runs, which cost (?P<spent>.+) USD together on the clock\."
    )
    found = re.fullmatch(pattern, said)
    if not found:
        return False
    values = [*evidence.values(title, cheapest[found["name"]], key).values()]
    spent = significant(found["spent"].replace(",", ""), evidence.spent_usd(title), 4, 1e-9)
    return spent and printed(found["figure"], moments(values)[1:], tolerance(key))
