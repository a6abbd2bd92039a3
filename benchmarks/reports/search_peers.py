"""Four ways to the quickest setting of a landscape: our search, a grid, random search and successive halving.

Random search and halving cap their runs by the search's rule, and decide among finalists as it does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmarks.reports.landscapes import Landscape, Setting
from tracking.analysis.search import Rules, SearchTrial, answer, cap_of, propose

GRID_SEEDS = (1, 2, 3)
KEPT = 3  # halving keeps one setting of three
RUNGS = 3


@dataclass(frozen=True)
class Outcome:
    """True regret: the named setting's time over the best one's, minus 1. Cost: GPU-seconds."""

    regret: float
    cost: float

    @classmethod
    def of(cls, world: Landscape, named: Setting | None, trials: Sequence[SearchTrial]) -> Outcome:
        regret = float("inf") if named is None else world.true_time(named) / world.best - 1
        return cls(regret, sum(trial.cost for trial in trials))


def searched(world: Landscape, rules: Rules, trials: Sequence[SearchTrial] = ()) -> list[SearchTrial]:
    """All runs of a search that continues from these trials, one at a time."""
    made = list(trials)
    while new := propose(rules, made):
        made += map(world.ended, new)
    return made


def by_grid(world: Landscape) -> Outcome:
    """Outcome of three seeds of each setting, without caps. Named: the lowest mean of settings without a miss."""
    trials = [world.ended(SearchTrial(setting, seed, "explore")) for setting in world.settings for seed in GRID_SEEDS]
    means = {}
    for place in range(len(world.settings)):
        runs = trials[place * len(GRID_SEEDS) : (place + 1) * len(GRID_SEEDS)]
        values = [run.value for run in runs if run.value is not None]
        if len(values) == len(runs):
            means[place] = fmean(values)
    named = world.settings[min(means, key=lambda place: means[place])] if means else None
    return Outcome.of(world, named, trials)


def by_random(world: Landscape, rules: Rules, explore_cost: float) -> Outcome:
    """Outcome of settings in random order, for as much GPU time as a search explores."""
    order = random.Random(f"random {world.seed}").sample(world.settings, len(world.settings))
    trials: list[SearchTrial] = []
    for setting in order:
        if sum(trial.cost for trial in trials) >= explore_cost:
            break
        trials.append(world.ended(SearchTrial(setting, 1, "explore", cap=cap_of(rules, trials, setting))))
    return _decided(world, rules, trials)


def by_halving(world: Landscape, rules: Rules) -> Outcome:
    """Outcome of successive halving (Jamieson and Talwalkar 2016, Non-stochastic Best Arm Identification): one run of
    each setting, a second of the best third, a third of the best ninth; then decide."""
    left, trials = (
        random.Random(f"halving {world.seed}").sample(world.settings, len(world.settings)),
        list[SearchTrial](),
    )
    runs: dict[int, list[float]] = {}
    for rung in range(RUNGS):
        for setting in left:
            trial = world.ended(SearchTrial(setting, rung + 1, "explore", cap=cap_of(rules, trials, setting)))
            trials.append(trial)
            beyond = 2 * (trial.censored_at or 0.0)
            runs.setdefault(world.settings.index(setting), []).append(beyond if trial.value is None else trial.value)
        left = sorted(left, key=lambda setting: fmean(runs[world.settings.index(setting)]))[: -(-len(left) // KEPT)]
    return _decided(world, rules, trials)


def _decided(world: Landscape, rules: Rules, trials: Sequence[SearchTrial]) -> Outcome:
    """Outcome of deciding among the finalists of these exploring runs, without a budget."""
    unlimited = replace(rules, budget=float("inf"))  # A search's budget would leave finalists out.
    finalists = tuple(figure.setting for figure in answer(unlimited, trials).figures)
    deciding = replace(unlimited, explore=False, finalists=finalists)
    made = searched(world, deciding, trials)
    return Outcome.of(world, answer(deciding, made).named, made)
