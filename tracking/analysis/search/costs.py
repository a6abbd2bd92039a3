"""What runs cost of a search's budget: those that were made, those to come, and those of a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from tracking.analysis.search.finalists import finalists_of_all
from tracking.analysis.search.known.explored import expectations
from tracking.analysis.search.known.trials import EXPLORE, Key, Rules, Scalar, SearchTrial, key_of, of_phase

BLOCKS = 5  # that the budget is kept for
GRID_SEEDS = 3


def spent(trials: Sequence[SearchTrial]) -> float:
    return math.fsum(trial.cost for trial in trials)


def usual_cost(rules: Rules, trials: Sequence[SearchTrial]) -> float:
    """What a run costs: the mean of those that ended and did not fail; 0 without any."""
    if rules.run_cost is not None:
        return rules.run_cost
    costs = [trial.cost for trial in trials if trial.state not in ("running", "failed")]
    return fmean(costs) if costs else 0.0


def whole_costs(rules: Rules, trials: Sequence[SearchTrial]) -> dict[Key, float]:
    """What a run of each setting costs that is alone and not stopped: its cost, times how much longer it is expected to
    take.

    Without runs that failed, which may have cost nothing.
    """
    costs: dict[Key, list[float]] = {}
    for group in rules.groups:
        own = [
            trial
            for trial in trials
            if rules.group_of(trial.setting) == group and trial.state not in ("running", "failed")
        ]
        for trial, value in zip(own, expectations(own), strict=True):
            reached_by = trial.value if trial.value is not None else trial.censored_at
            longer = value / reached_by if reached_by and value == value else 1.0
            cost = trial.cost_alone * longer if rules.run_cost is None else rules.run_cost
            costs.setdefault(trial.key, []).append(cost)
    return {key: fmean(values) for key, values in costs.items()}


def block_cost(rules: Rules, trials: Sequence[SearchTrial], settings: Sequence[Mapping[str, Scalar]]) -> float:
    """What a run of each of these settings is expected to cost."""
    costs = whole_costs(rules, trials)
    usual = fmean(costs.values()) if costs else rules.run_cost or 0.0
    return math.fsum(costs.get(key_of(setting), usual) for setting in settings)


def reserve(rules: Rules, trials: Sequence[SearchTrial]) -> float:
    """What deciding is expected to need: five blocks of the finalists as they are now."""
    if math.isinf(rules.budget) or not any(trial.value is not None for trial in trials):
        return 0.0
    return BLOCKS * block_cost(rules, trials, finalists_of_all(rules, trials))


def grid_cost(rules: Rules, trials: Sequence[SearchTrial]) -> float | None:
    """What a grid of three seeds would cost at least: of all settings, an interval at five values.

    An estimate: settings that were not tried are taken to cost what the others of their group do, and they are likely
    to cost more, since a search tries what is promising.
    """
    exploring = of_phase(trials, EXPLORE)
    costs = whole_costs(rules, exploring)
    if not costs:
        return None
    size = rules.grid_size / len(rules.groups)
    per_group: dict[Scalar | None, list[float]] = {group: [] for group in rules.groups}
    for key, cost in costs.items():
        per_group[rules.group_of(dict(key))].append(cost)
    means = [fmean(own) if own else fmean(costs.values()) for own in per_group.values()]
    return GRID_SEEDS * size * math.fsum(means)
