"""The answer of a search. All figures come from deciding runs only, so they are free of the luck of exploring."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tracking.analysis.search.blocks import Blocks
from tracking.analysis.search.costs import grid_cost, spent
from tracking.analysis.search.deciding import Deciding, Standing, best_of_groups, by_objective
from tracking.analysis.search.explored import explored
from tracking.analysis.search.trials import DECIDE, EXPLORE, Key, Rules, Scalar, SearchTrial, key_of, of_phase
from tracking.analysis.statistics import floored_variance, ratio_bounds

ENDS = ("reached", "stopped", "missed", "failed")  # of a run, best first
WITHOUT_TARGET = {"missed": "all missed", "stopped": "budget spent", "failed": "all failed"}  # the first that occurs


@dataclass(frozen=True)
class Figure:
    """The deciding runs of a finalist: their number `n`, and `num_short` that did not reach the target.

    `mean`, `low` and `high` come from the runs that did: None without such a run; with a single one, `low` and `high`
    are None.
    """

    setting: Mapping[str, Scalar]
    n: int
    mean: float | None
    low: float | None = None
    high: float | None = None
    num_short: int = 0
    best_of_group: bool = False


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the named setting is as another one, with its interval.

    `value` is a lower bound if runs of the other one did not reach the target, and an upper bound if own runs did not.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """The answer: the setting that is `named`, and those that are `alike`, which do not differ from it significantly.

    - `decided`: whether deciding compared finalists, and ended by its own rules.
    - `why`: what ended it: "decided", "not told apart", "nothing compared" (one finalist), "budget spent", "running",
      "all missed", "all failed", "no runs" or "missed in deciding" (only exploring runs reached the target).
    - `named`: None before the first look.
    - `compared`: the other settings whose deciding runs were compared with those of the named one.
    - `num_left_out`: the number of finalists that the budget was too small to compare.
    - `only_explored`: the number of settings that no deciding run compared, by how exploring ended for them:
      "reached", "stopped", "missed" or "failed".
    - `leading`: the best setting so far, even if only explored; it makes no claim.
    - `tolerance`: the share by which the best finalist may be sooner than the named one; None if nothing was compared.
    - `unbiased`: the named setting's mean, corrected for the luck of being chosen.
    - `ratios`: of the named setting to each other group's best.
    - `grid_cost`: the estimated cost of a grid.
    - `best_value_if_all_missed`: the best value of the target's metric.
    - `looks`: how often deciding compared the finalists.
    """

    decided: bool
    why: str
    named: Mapping[str, Scalar] | None = None
    alike: tuple[Mapping[str, Scalar], ...] = ()
    compared: tuple[Mapping[str, Scalar], ...] = ()
    num_left_out: int = 0
    only_explored: Mapping[str, int] | None = None
    leading: Mapping[str, Scalar] | None = None
    tolerance: float | None = None
    unbiased: float | None = None
    figures: tuple[Figure, ...] = ()
    best_by_group: Mapping[Scalar | None, Figure] | None = None
    ratios: Mapping[Scalar | None, Ratio] | None = None
    num_explored: int = 0
    num_decided: int = 0
    num_stopped: int = 0
    explore_cost: float = 0.0
    decide_cost: float = 0.0
    grid_cost: float | None = None
    best_value_if_all_missed: float | None = None
    looks: int = 0


def answers(rules: Rules, trials: Sequence[SearchTrial], lost: Sequence[SearchTrial] = ()) -> list[Answer]:
    """The answer by each objective after these trials, at any time of a search. `lost` trials only add to the cost."""
    known = [_answer(deciding) for deciding in by_objective(rules, trials)]
    explore_cost, decide_cost = (spent(of_phase(lost, phase)) for phase in (EXPLORE, DECIDE))
    return [
        replace(each, explore_cost=each.explore_cost + explore_cost, decide_cost=each.decide_cost + decide_cost)
        for each in known
    ]


def answer(rules: Rules, trials: Sequence[SearchTrial]) -> Answer:
    """The answer by the first objective after these trials."""
    return answers(rules, trials)[0]


def _answer(deciding: Deciding) -> Answer:
    rules, trials, standing = deciding.rules, deciding.trials, deciding.standing
    decided = deciding.started
    settings = {key_of(setting): setting for setting in [*deciding.finalists, *(trial.setting for trial in decided)]}
    named = _named(standing) if standing.num_looks else None
    rivals = [key for key in map(key_of, deciding.finalists) if named and key != named]
    best = best_of_groups(rules, standing.blocks, standing.members)
    whole = Blocks({key: standing.blocks.runs[key] for key in standing.candidates}, standing.blocks.num)
    figures = {key: _figure(rules, settings[key], standing, key in best.values()) for key in settings}
    exploring = [trial for trial in of_phase(trials, EXPLORE) if not trial.refused]
    return Answer(
        decided=standing.ended and bool(rivals),
        why=_why(trials, standing, named, rivals),
        named=settings[named] if named else None,
        alike=tuple(settings[key] for key in standing.candidates if key != named) if named else (),
        compared=tuple(settings[key] for key in rivals),
        num_left_out=len(deciding.runnable) - len(deciding.finalists),
        only_explored=_only_explored(exploring, settings),
        leading=settings[named] if named else _leading(rules, trials),
        tolerance=_tolerance(whole, named, standing) if named and rivals else None,
        unbiased=_unbiased(figures[named], standing.blocks, named) if named else None,
        figures=tuple(figures.values()),
        best_by_group={group: figures[key] for group, key in best.items()},
        ratios=_ratios(rules, standing, named, best) if named else {},
        num_explored=len(exploring),
        num_decided=len(decided),
        num_stopped=sum(trial.state == "stopped" for trial in exploring),
        explore_cost=spent(exploring),
        decide_cost=spent(decided),
        grid_cost=grid_cost(rules, trials),
        best_value_if_all_missed=_closest(rules, trials),
        looks=standing.num_looks,
    )


def _named(standing: Standing) -> Key | None:
    """The candidate with the fewest misses, then the lowest mean; None if none reached the target."""
    key = min(standing.candidates, key=standing.blocks.order, default=None)
    return key if key and standing.blocks.times(key).reached else None


def _why(trials: Sequence[SearchTrial], standing: Standing, named: Key | None, rivals: Sequence[Key]) -> str:
    if any(trial.state == "running" for trial in trials):
        return "running"
    if not any(trial.value is not None for trial in trials):
        ends = {trial.state for trial in trials if not trial.refused}
        return next((why for end, why in WITHOUT_TARGET.items() if end in ends), "no runs")
    if standing.ended and named and not rivals:
        return "nothing compared"
    if standing.ended and named:
        return "decided" if len(standing.candidates) == 1 else "not told apart"
    return "missed in deciding" if standing.ended else "budget spent"


def _only_explored(exploring: Sequence[SearchTrial], decided: Collection[Key]) -> dict[str, int]:
    """The number of explored settings without a deciding run, by the best end of their runs."""
    ends: dict[Key, set[str]] = {}
    for trial in exploring:
        if trial.key not in decided and trial.state != "running":
            ends.setdefault(trial.key, set()).add(trial.state)
    best = Counter(next(end for end in ENDS if end in own) for own in ends.values())
    return {end: best[end] for end in ENDS if best[end]}


def _leading(rules: Rules, trials: Sequence[SearchTrial]) -> Mapping[str, Scalar] | None:
    settings = [setting for group in rules.groups for setting in explored(rules, trials, group) if setting.reached]
    best = min(settings, key=lambda setting: (setting.num_missed, setting.expected), default=None)
    if best is not None:
        return best.trials[0].setting
    decided = [trial for trial in of_phase(trials, DECIDE) if trial.value is not None]
    best_run = min(decided, key=lambda trial: trial.value or 0.0, default=None)
    return best_run.setting if best_run else None


def _figure(rules: Rules, setting: Mapping[str, Scalar], standing: Standing, best: bool) -> Figure:
    """The arithmetic mean with Student's interval, at least as wide as the evaluation intervals require.

    The intervals of all candidates and of both objectives hold at once (Bonferroni), since the named setting is chosen
    among them.
    """
    times = standing.blocks.times(key_of(setting))
    values = list(times.reached)
    if len(values) < 2:
        return Figure(setting, times.n, values[0] if values else None, num_short=times.num_short, best_of_group=best)
    from scipy import special

    level = rules.alpha / 2 / max(1, len(standing.candidates) if standing.num_looks else 1)
    error = math.sqrt(floored_variance(values, times.interval) / len(values))
    half = float(special.stdtrit(len(values) - 1, 1 - level)) * error
    mean = fmean(values)
    low = max(0.0, mean - half)  # No time, cost or energy is below 0.
    return Figure(setting, times.n, mean, low, mean + half, times.num_short, best)


def _unbiased(figure: Figure, blocks: Blocks, named: Key) -> float | None:
    return None if figure.mean is None else figure.mean * math.exp(blocks.optimism(named))


def _tolerance(blocks: Blocks, named: Key, standing: Standing) -> float:
    """The share by which the best of the candidates may be sooner than the named one; 0 if it is the only one.

    The bounds over all others hold at once: multiple comparisons with the best (statistics/best_of.py).
    """
    others = [key for key in standing.candidates if key != named]
    level = standing.level / max(1, len(others))
    return max([1.0, *(blocks.at_most(named, key, level) for key in others)]) - 1


def _ratios(
    rules: Rules, standing: Standing, named: Key, best: Mapping[Scalar | None, Key]
) -> dict[Scalar | None, Ratio]:
    """The ratio of the named setting to the best of each other group; the intervals hold at once, and at all looks.

    If runs of both settings did not reach the target, both means are only bounds, and there is no ratio.
    """
    blocks, own = standing.blocks, rules.group_of(dict(named))
    others = {group: key for group, key in best.items() if group != own}
    ratios = {}
    for group, key in others.items():
        sooner, later = blocks.times(named), blocks.times(key)
        paired = blocks.whole(named) and blocks.whole(key)
        bounds = ratio_bounds(later, sooner, 1 - standing.level / 2 / len(others), paired)
        if bounds is not None and not (sooner.num_short and later.num_short):
            ratios[group] = Ratio(fmean(later.bounds(sooner)) / fmean(sooner.bounds(later)), *bounds)
    return ratios


def _closest(rules: Rules, trials: Sequence[SearchTrial]) -> float | None:
    metrics = [trial.metric for trial in trials if trial.metric is not None]
    if any(trial.value is not None for trial in trials) or not metrics:
        return None
    return max(metrics) if rules.higher else min(metrics)
