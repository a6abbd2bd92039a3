"""The cap at which an exploring run is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracking.analysis.search.known.explored import explored, incumbent, noise, resolution
from tracking.analysis.search.known.trials import Rules, Scalar, SearchTrial

MANY_SPREADS = 3.0


def cap_of(rules: Rules, trials: Sequence[SearchTrial], setting: Mapping[str, Scalar] | None = None) -> float | None:
    """The objective at which a run that starts now is stopped; None if no best is known.

    It is the best mean so far, plus the larger of three pooled standard deviations and an evaluation interval. With a
    `setting`, the best is its group's, since each group's best is part of the answer. Otherwise a slow group would be
    stopped before its best setting is known.
    """
    groups = rules.groups if setting is None else (rules.group_of(setting),)
    leading = [incumbent(explored(rules, trials, group)) for group in groups]
    best = min((leader for leader in leading if leader), key=lambda leader: leader.expected, default=None)
    if best is None:
        return None
    return best.expected * (1 + max(MANY_SPREADS * noise(trials), resolution(best)))
