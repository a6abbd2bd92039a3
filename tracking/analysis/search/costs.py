"""The costs of runs in a search's budget: of past runs, of future runs, and of a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median_low

from tracking.analysis.search.explored import expectations
from tracking.analysis.search.finalists import finalists_of_all
from tracking.analysis.search.trials import EXPLORE, Key, Rules, Scalar, SearchTrial, key_of, of_phase

BLOCKS = 5  # blocks for which budget is reserved
GRID_SEEDS = 3


def spent(trials: Sequence[SearchTrial]) -> float:
    return math.fsum(trial.cost for trial in trials)


def usual_cost(rules: Rules, trials: Sequence[SearchTrial]) -> float:
    """The mean cost of runs that ended and did not fail; 0 without any."""
    if rules.run_cost is not None:
        return rules.run_cost
    costs = [trial.cost for trial in trials if trial.state not in ("running", "failed")]
    return fmean(costs) if costs else 0.0


def whole_costs(rules: Rules, trials: Sequence[SearchTrial]) -> dict[Key, float]:
    """The expected cost of a run of each setting, alone and not stopped.

    For one run it is cost * expected time / time so far. For several it is their lower median, since the first one may
    have compiled. Failed runs are left out, since they may have cost nothing.
    """
    costs: dict[Key, list[float]] = {}
    for group in rules.groups:
        of_group = [
            trial
            for trial in trials
            if rules.group_of(trial.setting) == group and trial.state not in ("running", "failed")
        ]
        for trial, value in zip(of_group, expectations(of_group), strict=True):
            reached_by = trial.value if trial.value is not None else trial.censored_at
            longer = value / reached_by if reached_by and value == value else 1.0
            cost = trial.cost_alone * longer if rules.run_cost is None else rules.run_cost
            costs.setdefault(trial.key, []).append(cost)
    return {key: median_low(values) for key, values in costs.items()}


def block_cost(rules: Rules, trials: Sequence[SearchTrial], settings: Sequence[Mapping[str, Scalar]]) -> float:
    """The expected cost of one run of each of these settings."""
    costs = whole_costs(rules, trials)
    usual = fmean(costs.values()) if costs else rules.run_cost or 0.0
    return math.fsum(costs.get(key_of(setting), usual) for setting in settings)


def reserve(rules: Rules, trials: Sequence[SearchTrial]) -> float:
    """The expected cost of deciding: BLOCKS blocks of the present finalists."""
    if math.isinf(rules.budget) or not any(trial.value is not None for trial in trials):
        return 0.0
    return BLOCKS * block_cost(rules, trials, finalists_of_all(rules, trials))


def grid_cost(rules: Rules, trials: Sequence[SearchTrial]) -> float | None:
    """The estimated cost of a grid: GRID_SEEDS seeds of all settings, with five values of an interval.

    Settings that were not tried are taken to cost as much as the others of their group. They probably cost more, since
    a search tries promising settings, so the estimate is low.
    """
    exploring = of_phase(trials, EXPLORE)
    costs = whole_costs(rules, exploring)
    if not costs:
        return None
    size = rules.grid_size / len(rules.groups)
    per_group: dict[Scalar | None, list[float]] = {group: [] for group in rules.groups}
    for key, cost in costs.items():
        per_group[rules.group_of(dict(key))].append(cost)
    means = [fmean(values) if values else fmean(costs.values()) for values in per_group.values()]
    return GRID_SEEDS * size * math.fsum(means)
