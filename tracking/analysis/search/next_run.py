"""What exploring runs next, and when it ends.

Each group is searched separately, with the same number of settings, since the ratio of two groups' bests is only fair
if both were searched alike. Within a group come the starting settings, a few that fill the space, and then proposals.
The best setting is repeated now and then, to measure the noise and to correct lucky results. With two objectives, the
best of each is repeated, and proposals are made around the front.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tracking.analysis.search.earlier import agreed_shape, promises_nothing
from tracking.analysis.search.explored import Explored, cap_of, noise, resolution
from tracking.analysis.search.group import FILL, Group
from tracking.analysis.search.new_settings import new_setting, unknown_neighbours
from tracking.analysis.search.trials import EXPLORE, Key, Rules, Scalar, SearchTrial, Second, of_phase

MOST_REPEATS = 3  # runs of the best setting of a group
BETWEEN_REPEATS = 3  # the least number of new settings of a group
PATIENCE, PATIENCE_AN_AXIS = 6, 2  # proposals without a gain


def next_of(rules: Rules, trials: Sequence[SearchTrial]) -> SearchTrial | None:
    """The next exploring run; None if every group has ended or has to wait for free GPUs.

    The group with the fewest runs comes first. While it waits for GPUs, others may get ahead of it by at most as many
    runs as there are GPUs. Then GPUs are kept free for it.
    """
    exploring = of_phase(trials, EXPLORE)
    groups = [Group(rules, value, exploring) for value in rules.groups]
    waits: Group | None = None
    for group in sorted((group for group in groups if not ended(group)), key=lambda group: len(group.own)):
        if waits and len(group.own) >= len(waits.own) + rules.num_gpus:
            return None
        trial = _next_of_group(group)
        if trial and _has_room(rules, exploring, trial):
            return trial
        waits = waits or (group if trial else None)
    return None


def _next_of_group(group: Group) -> SearchTrial | None:
    repeat = _repeat(group)
    if repeat is not None:  # without a cap, which would make the noise seem smaller
        return SearchTrial(*repeat, EXPLORE)
    setting = new_setting(group)
    if setting is None:
        return None
    caps = [cap_of(view.rules, view.trials, setting) for view in group.views]
    second = Second(caps[1]) if len(caps) > 1 else None
    return SearchTrial(setting, group.rules.explore_seed, EXPLORE, cap=caps[0], second=second)


def _has_room(rules: Rules, trials: Sequence[SearchTrial], new: SearchTrial) -> bool:
    running = [trial for trial in trials if trial.state == "running"]
    taken = sum(rules.gpus_of(trial.setting) for trial in running)
    return not running or taken + rules.gpus_of(new.setting) <= rules.num_gpus


def filling(rules: Rules, trials: Sequence[SearchTrial]) -> bool:
    """Whether a group still has fewer settings than fill its space."""
    exploring = of_phase(trials, EXPLORE)
    groups = [Group(rules, value, exploring) for value in rules.groups]
    return any(len(group.keys) < group.num_first for group in groups)


def ended(group: Group) -> bool:
    """Whether exploring a group has ended: all settings are known, or too many were tried without a gain.

    A gain is a setting that no earlier one equals in each objective, within the noise.
    """
    keys = list(group.keys)
    if group.rules.num_inner is not None and len(keys) >= group.rules.num_inner:
        return _repeat(group) is None
    shape = agreed_shape(group.rules, group.trials)
    if shape and promises_nothing(group, shape):
        return _repeat(group) is None
    patience = max(PATIENCE, PATIENCE_AN_AXIS * len(group.rules.axes))
    gains, since = list[tuple[float, ...]](), 0
    for each in zip(*(view.settings for view in group.views), strict=True):
        reach = [_least_gain(*pair) for pair in zip(group.views, each, strict=True)]
        values = tuple(setting.expected for setting in each)
        beaten = any(
            all(value >= gain * (1 - least) for value, gain, least in zip(values, before, reach, strict=True))
            for before in gains
        )
        gained = each[0].known and not beaten
        since = 0 if gained else since + 1
        gains += [values] if gained else []
    tired = since >= patience + (0 if gains else FILL)
    return tired and _repeat(group) is None and not unknown_neighbours(group)


def _least_gain(group: Group, setting: Explored) -> float:
    return max(noise(group.trials), resolution(setting) / 2)


def _repeat(group: Group) -> tuple[dict[str, Scalar], int] | None:
    """The group's best setting with its next seed, if it is to be repeated; else None."""
    keys = dict.fromkeys(best.key for best in group.best if best)
    return next((repeat for key in keys if (repeat := _repeat_of(group, key, keys))), None)


def _repeat_of(group: Group, key: Key, bests: Collection[Key]) -> tuple[dict[str, Scalar], int] | None:
    own = group.own
    if any(trial.key == key and trial.state == "running" for trial in own):
        return None
    seeds = {trial.seed for trial in own if trial.key == key}
    repeated: set[Key] = set()
    num_new = 0
    for trial in own:  # count new settings since the last repeat; repeats of another objective's best do not count
        if trial.key not in repeated:
            num_new += 1
        elif trial.key == key or trial.key not in bests:
            num_new = 0
        repeated.add(trial.key)
    num_settings = group.rules.num_inner
    full = num_settings is not None and len(repeated) >= num_settings
    if len(seeds) >= (2 if full else MOST_REPEATS) or num_new < (1 if full else BETWEEN_REPEATS):
        return None
    return group.whole(dict(key)), max(seeds) + 1
