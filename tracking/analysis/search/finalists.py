"""The finalists: the best settings of exploring, and the best of each group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tracking.analysis.search.earlier import agreed_shape, ranked_by
from tracking.analysis.search.explored import Explored, explored, noise, resolution
from tracking.analysis.search.objectives import views
from tracking.analysis.search.trials import Key, Rules, Scalar, SearchTrial, key_of

MANY_SPREADS = 2.0


def finalists_of_all(rules: Rules, trials: Sequence[SearchTrial]) -> list[Mapping[str, Scalar]]:
    """The finalists of all objectives, each once."""
    chosen = [setting for view in views(rules, trials) for setting in finalists(*view)]
    return list({key_of(setting): setting for setting in chosen}.values())


def finalists(rules: Rules, trials: Sequence[SearchTrial]) -> list[Mapping[str, Scalar]]:
    """The settings to decide among, most promising first. Only exploring runs count, so deciding does not change them.

    They are at most `max_finalists` settings within two standard errors of the best, and the best of each group.
    """
    if not rules.explore:
        return [dict(setting) for setting in {key_of(setting): setting for setting in rules.finalists}.values()]
    groups = [_usable(explored(rules, trials, group)) for group in rules.groups]
    judged = _judged(rules, trials, [setting for group in groups for setting in group])
    ranked = sorted((setting for group in groups for setting in group), key=lambda setting: judged[setting.key][0])
    chosen = [setting for setting in ranked if judged[setting.key][1]][: rules.max_finalists]
    bests = [min(group, key=lambda setting: judged[setting.key][0]) for group in groups if group]
    of_groups = [setting for setting in ranked if setting in bests and setting not in chosen]
    return [setting.trials[0].setting for setting in [*chosen, *of_groups]]


def _usable(settings: Sequence[Explored]) -> list[Explored]:
    """The settings of a group without a miss; without any, those with the fewest misses that also reached the target.

    A setting that misses now and then may still be the best, and only deciding counts its misses.
    """
    if usable := [setting for setting in settings if setting.usable]:
        return usable
    reached = [setting for setting in settings if setting.reached]
    fewest = min((setting.num_missed for setting in reached), default=0)
    return [setting for setting in reached if setting.num_missed == fewest]


def _judged(rules: Rules, trials: Sequence[SearchTrial], settings: Sequence[Explored]) -> dict[Key, tuple[float, bool]]:
    """For each setting, its rank value, and whether it is close to the best one.

    Both come from the setting's own runs, unless an earlier search agrees with this one.
    """
    if settings and (shape := agreed_shape(rules, trials)):
        return ranked_by(rules, shape, settings)
    spread, best = noise(trials), min(settings, key=_expected, default=None)
    return {setting.key: (setting.expected, best is not None and _close(setting, best, spread)) for setting in settings}


def _expected(setting: Explored) -> float:
    return setting.expected


def _close(setting: Explored, best: Explored, spread: float) -> bool:
    error = math.sqrt(sum(max(spread, resolution(side) / 2) ** 2 / len(side.trials) for side in (setting, best)))
    return math.log(setting.expected / best.expected) <= MANY_SPREADS * error
