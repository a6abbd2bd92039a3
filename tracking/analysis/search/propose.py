"""Propose the next runs of a search."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.search.costs import reserve, spent, usual_cost
from tracking.analysis.search.deciding import next_deciding
from tracking.analysis.search.group import Group
from tracking.analysis.search.next_run import MOST_REPEATS, filling, next_of
from tracking.analysis.search.trials import DECIDE, EXPLORE, Rules, SearchTrial, of_phase


def propose(rules: Rules, trials: Sequence[SearchTrial]) -> list[SearchTrial]:
    """The runs to start now, given all trials in order of their start.

    Exploring fills up to `at_once` running runs. Deciding starts one run, or a block of runs on their own nodes, once
    nothing runs. [] means to wait while runs are running, else that the search has ended.
    """
    running = [trial for trial in trials if trial.state == "running"]
    exploring = rules.explore and not of_phase(trials, DECIDE)
    if exploring:
        new: list[SearchTrial] = []
        while len(running) + len(new) < rules.at_once and _affordable(rules, [*trials, *new]):
            trial = next_of(rules, [*trials, *new])
            if trial is None:
                break
            new.append(trial)
        if new or running:
            return new
    return [] if running else next_deciding(rules, trials)


def runs_to_first_look(rules: Rules, fewest: bool = False) -> int:
    """The number of runs before deciding's first look, as known in advance: with the most finalists, or the fewest."""
    num_explored = sum(Group(rules, value, []).num_first for value in rules.groups) if rules.explore else 0
    most = min(rules.max_finalists, 2) if fewest else rules.max_finalists
    num_finalists = max(len(rules.groups), min(most, num_explored)) if rules.explore else 0
    return num_explored + rules.looks[0] * (num_finalists or len(rules.finalists))


def highest_seed(rules: Rules) -> int:
    """The highest seed that the search may use: of the last block, after repeats while exploring."""
    return max(rules.explore_seed + MOST_REPEATS - 1, rules.earlier_seed) + rules.looks[-1]


def _affordable(rules: Rules, trials: Sequence[SearchTrial]) -> bool:
    """Whether the budget allows another exploring run and deciding; running runs count at the usual cost.

    The first settings of each group may use the whole budget, since deciding needs them.
    """
    num_running = sum(trial.state == "running" for trial in trials)
    kept = 0.0 if filling(rules, trials) else reserve(rules, trials)
    return spent(trials) + (num_running + 1) * usual_cost(rules, of_phase(trials, EXPLORE)) + kept <= rules.budget
