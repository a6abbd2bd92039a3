"""A search on a landscape, and other ways to the quickest setting: a grid, random search and successive halving.

Random search and halving stop their runs by the same rule, and decide among their finalists as a search does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmarks.reports.landscapes import SETTINGS, Landscape, Setting
from tracking.analysis.search import Rules, SearchTrial, answer, cap_of, propose

GRID_SEEDS = (1, 2, 3)
KEPT = 3  # halving keeps one of so many
RUNGS = 3


@dataclass(frozen=True)
class Outcome:
    """By what share the best setting is truly sooner than the named one, and the GPU-seconds that it took."""

    regret: float
    cost: float

    @classmethod
    def of(cls, world: Landscape, named: Setting | None, trials: Sequence[SearchTrial]) -> Outcome:
        regret = float("inf") if named is None else world.true_time(named) / world.best - 1
        return cls(regret, sum(trial.cost for trial in trials))


def searched(world: Landscape, rules: Rules, trials: Sequence[SearchTrial] = ()) -> list[SearchTrial]:
    """All runs of a search that goes on from these, one after the other."""
    made = list(trials)
    while new := propose(rules, made):
        made += map(world.ended, new)
    return made


def by_grid(world: Landscape) -> Outcome:
    """Three seeds of every setting, without caps; the lowest mean among those that never miss."""
    trials = [world.ended(SearchTrial(setting, seed, "explore")) for setting in SETTINGS for seed in GRID_SEEDS]
    means = {}
    for place in range(len(SETTINGS)):
        runs = trials[place * len(GRID_SEEDS) : (place + 1) * len(GRID_SEEDS)]
        values = [run.value for run in runs if run.value is not None]
        if len(values) == len(runs):
            means[place] = fmean(values)
    named = SETTINGS[min(means, key=lambda place: means[place])] if means else None
    return Outcome.of(world, named, trials)


def by_random(world: Landscape, rules: Rules, explore_cost: float) -> Outcome:
    """Settings in random order for as much as a search explored for."""
    order = random.Random(f"random {world.seed}").sample(SETTINGS, len(SETTINGS))
    trials: list[SearchTrial] = []
    for setting in order:
        if sum(trial.cost for trial in trials) >= explore_cost:
            break
        trials.append(world.ended(SearchTrial(setting, 1, "explore", cap=cap_of(rules, trials, setting))))
    return _decided(world, rules, trials)


def by_halving(world: Landscape, rules: Rules) -> Outcome:
    """One run of every setting, a second one of the best third, a third one of the best ninth (Jamieson and Talwalkar
    2016, Non-stochastic Best Arm Identification), and then deciding."""
    left, trials = random.Random(f"halving {world.seed}").sample(SETTINGS, len(SETTINGS)), list[SearchTrial]()
    runs: dict[int, list[float]] = {}
    for rung in range(RUNGS):
        for setting in left:
            trial = world.ended(SearchTrial(setting, rung + 1, "explore", cap=cap_of(rules, trials, setting)))
            trials.append(trial)
            beyond = 2 * (trial.censored_at or 0.0)
            runs.setdefault(SETTINGS.index(setting), []).append(beyond if trial.value is None else trial.value)
        left = sorted(left, key=lambda setting: fmean(runs[SETTINGS.index(setting)]))[: -(-len(left) // KEPT)]
    return _decided(world, rules, trials)


def _decided(world: Landscape, rules: Rules, trials: Sequence[SearchTrial]) -> Outcome:
    """Deciding with no limit of its own, among the finalists of these exploring runs."""
    finalists = tuple(figure.setting for figure in answer(rules, trials).figures)
    deciding = replace(rules, explore=False, finalists=finalists, budget=float("inf"))
    made = searched(world, deciding, trials)
    return Outcome.of(world, answer(deciding, made).named, made)
