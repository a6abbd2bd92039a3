"""Deciding: blocks of one run of each finalist, in shuffled order, with seeds that exploring did not use.

A run counts for each objective. With two objectives, a setting is run as long as either may still choose it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from tracking.analysis.search.blocks import Blocks, survivors
from tracking.analysis.search.costs import block_cost, spent
from tracking.analysis.search.finalists import finalists, finalists_of_all
from tracking.analysis.search.objectives import views
from tracking.analysis.search.trials import DECIDE, EXPLORE, Key, Rules, Scalar, SearchTrial, key_of, of_phase


@dataclass(frozen=True)
class Standing:
    """The state of deciding.

    `candidates` may be the best. `members` are run in the next block, with the best of each group among them.
    `num_looks` counts the looks so far. `blocks` are those of the last look, or all blocks before the first look.
    `level` is the part of the error that the last look spends. Intervals at this level hold at all looks at once,
    whichever look ends deciding (repeated confidence intervals: Jennison and Turnbull 1989, Journal of the Royal
    Statistical Society B 51, 305-361).
    """

    candidates: list[Key]
    members: list[Key]
    num_looks: int
    blocks: Blocks
    ended: bool  # one candidate is left, or all looks were made
    level: float


@dataclass(frozen=True)
class Deciding:
    """The deciding part of a search by one objective, among the `chosen` settings."""

    rules: Rules
    trials: Sequence[SearchTrial]
    chosen: AbstractSet[Key]

    @cached_property
    def finalists(self) -> list[Mapping[str, Scalar]]:
        """The settings to decide among, most promising first."""
        return [setting for setting in self.runnable if key_of(setting) in self.chosen]

    @cached_property
    def runnable(self) -> list[Mapping[str, Scalar]]:
        """The finalists that can be run, also those that the budget leaves out.

        A finalist can turn out not to run: it gives the same config as another one, or a resume finds another machine.
        """
        refused = {trial.key for trial in of_phase(self.trials, DECIDE) if trial.refused}
        return [setting for setting in finalists(self.rules, self.trials) if key_of(setting) not in refused]

    @cached_property
    def runs(self) -> dict[Key, dict[int, SearchTrial]]:
        """The ended deciding runs by block, for each finalist and each other setting with a deciding run."""
        runs: dict[Key, dict[int, SearchTrial]] = {key_of(setting): {} for setting in self.finalists}
        for trial in self.started:
            own = runs.setdefault(trial.key, {})
            if trial.state != "running" and trial.block is not None:
                own[trial.block] = trial
        return runs

    @property
    def started(self) -> list[SearchTrial]:
        """The deciding runs, without those that were refused before their start."""
        return [trial for trial in of_phase(self.trials, DECIDE) if not trial.refused]

    def blocks(self, num: int) -> Blocks:
        return Blocks(
            {key: [runs[block] for block in sorted(runs) if block < num] for key, runs in self.runs.items()}, num
        )

    @cached_property
    def standing(self) -> Standing:
        candidates = members = [key_of(setting) for setting in self.finalists]
        rules = self.rules
        blocks, num_looks, spent_now = self.blocks(rules.looks[-1]), 0, rules.alpha
        for look, level in zip(rules.looks, levels(rules.looks, rules.alpha), strict=True):
            if not members or not all(set(range(look)) <= self.runs[key].keys() for key in members):
                break
            blocks, num_looks, spent_now = self.blocks(look), num_looks + 1, level
            whole = Blocks({key: blocks.runs[key] for key in members}, look)
            candidates = survivors(whole, candidates, level)
            kept = {*candidates, *best_of_groups(rules, blocks, members).values()}
            members = [key for key in members if key in kept]
            if len(candidates) < 2:
                break
        ended = num_looks > 0 and (len(candidates) < 2 or num_looks == len(rules.looks))
        return Standing(candidates, members, num_looks, blocks, ended, spent_now)


def by_objective(rules: Rules, trials: Sequence[SearchTrial]) -> list[Deciding]:
    """Deciding by each objective.

    The budget limits the finalists of all objectives together. Once a second block has begun, they stay.
    """
    begun = [trial for trial in of_phase(trials, DECIDE) if trial.block is not None]
    if any(trial.block for trial in begun):
        chosen = {trial.key for trial in begun if trial.block == 0}
    else:
        chosen = {key_of(setting) for setting in affordable(rules, of_phase(trials, EXPLORE))}
    return [Deciding(*view, chosen) for view in views(rules, trials)]


def affordable(rules: Rules, trials: Sequence[SearchTrial]) -> list[Mapping[str, Scalar]]:
    """The most finalists whose blocks up to the first look fit the budget after these trials; two at least.

    The best of each group stays, by each objective.
    """
    chosen = finalists_of_all(rules, trials)
    for most in range(rules.max_finalists - 1, 0, -1) if rules.explore else ():
        if spent(trials) + rules.looks[0] * block_cost(rules, trials, chosen) <= rules.budget:
            break
        fewer = finalists_of_all(replace(rules, max_finalists=most), trials)
        if len(fewer) < 2:
            break
        chosen = fewer
    return chosen


def next_deciding(rules: Rules, trials: Sequence[SearchTrial]) -> list[SearchTrial]:
    """The next run of the first incomplete block; all its remaining runs if each has its own nodes.

    [] if deciding has ended or the budget is spent.
    """
    each = by_objective(rules, trials)
    left = [deciding for deciding in each if not deciding.standing.ended]
    members = list(dict.fromkeys(key for deciding in left for key in deciding.standing.members))
    if not members:
        return []
    done = each[0].runs
    waits = {block: [key for key in members if block not in done.get(key, {})] for block in range(rules.looks[-1])}
    block = next(block for block, waiting in waits.items() if waiting)
    order = sorted(members, key=repr)  # a list of choices may hold numbers and words
    random.Random(f"{rules.seed} block {block}").shuffle(order)
    waiting = [key for key in order if key in waits[block]]
    settings = {key_of(setting): dict(setting) for deciding in left for setting in deciding.finalists}
    # Exploring shows the cost of a run. Without it the first block's runs do, so the budget is checked before each.
    unforeseen = block == 0 and not rules.explore
    # A block that fitted when it began is completed, unless a resume gave a smaller budget.
    known = trials if unforeseen else [trial for trial in trials if trial.block is None or trial.block < block]
    cost = block_cost(rules, known, [settings[key] for key in (waiting if unforeseen else order)])
    if spent(known) + cost > rules.budget:
        return []
    together = waiting if rules.apart and not unforeseen else waiting[:1]
    return [SearchTrial(settings[key], _seed(rules, trials, block), DECIDE, block) for key in together]


def _seed(rules: Rules, trials: Sequence[SearchTrial], block: int) -> int:
    """The seed of a block, the same for all settings, above all seeds of exploring and of the earlier search.

    On the same machine a seed may bring the same luck again, and both chose the finalists.
    """
    used = [trial.seed for trial in [*of_phase(trials, EXPLORE), *rules.earlier]]
    return max([rules.explore_seed, rules.earlier_seed, *used]) + 1 + block


def best_of_groups(rules: Rules, blocks: Blocks, members: Sequence[Key]) -> dict[Scalar | None, Key]:
    """The best member of each group among those with a run that reached the target."""
    best: dict[Scalar | None, Key] = {}
    for key in sorted(members, key=blocks.order):
        if blocks.times(key).reached:
            best.setdefault(rules.group_of(dict(key)), key)
    return {group: best[group] for group in rules.groups if group in best}


def levels(looks: Sequence[int], alpha: float) -> list[float]:
    """The level of each look: the increase of the spending function alpha x blocks / all blocks.

    The error may be spent as a function of the information (Lan and DeMets 1983, Biometrika 70, 659-663; this function
    is the one with rho = 1 of Kim and DeMets 1987, Biometrika 74, 149-154). By Bonferroni's inequality, the sum of the
    levels bounds the error for any dependence of the looks. Their joint distribution would allow a little more.
    """
    spent = [alpha * look / looks[-1] for look in looks]
    return [total - before for total, before in zip(spent, [0.0, *spent], strict=False)]
