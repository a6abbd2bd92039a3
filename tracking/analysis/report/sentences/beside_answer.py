"""Sentences after a report's answer: misses, runs that do not count, the cheapest setting, the limit of the best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tracking.analysis.compare import UNTIL_CENSORED, Best, Comparison, Setting, Task, estimate, grouping
from tracking.analysis.report.sentences import phrases
from tracking.analysis.report.sentences.templates import MOST_NAMED, Sentence
from tracking.analysis.results import EXPLORING
from tracking.base import quantities
from tracking.base.number_text import counted
from tracking.measure.bottleneck import NAMES, RunOptions, alone_first, first_try, limit, shared_cores

COST = quantities.COST_TO_ACCURACY_USD


def beside(task: Task, metric: str, chosen: Best | None, comparisons: Sequence[Comparison]) -> list[Sentence]:
    """The sentences that apply to these runs; `comparisons` are the workload's."""
    sentences = [_misses(task, metric, chosen), _not_counted(task)]
    if chosen is not None:
        pairs = [pair for pair in comparisons if chosen.leader in (pair.better, pair.worse)]
        sentences = [_more_often(task.title, chosen.leader, pairs), *sentences]
        sentences += [_cheapest(task, metric, chosen.leader), _limit(task.title, chosen.leader)]
    return [sentence for sentence in sentences if sentence]


def _misses(task: Task, metric: str, chosen: Best | None) -> Sentence | None:
    """How often each setting reached the target; None if all runs did, or none did, which the answer says."""
    short = [setting for setting in task.settings if setting.num_missed or setting.stopped]
    if not short or chosen is None or metric not in UNTIL_CENSORED:
        return None
    counts = [_share(setting) for setting in short[:MOST_NAMED]]
    if len(short) > MOST_NAMED:
        counts.append(f"{counted(len(short) - MOST_NAMED, 'more setting')} not in every run")
    return Sentence("misses", task.title, {"short": [setting.name for setting in short], "counts": "; ".join(counts)})


def _share(setting: Setting) -> str:
    """`4 GPUs in 3 of 5 runs (23-88 %), 1 stopped before it`."""
    share, name = setting.reached, phrases.name(setting)
    words = [name]
    if share:
        words = [f"{name} in {share.reached} of {counted(share.n, 'run')}{share.interval}"]
    return ", ".join([*words, *([f"{len(setting.stopped)} stopped before it"] if setting.stopped else [])])


def _not_counted(task: Task) -> Sentence | None:
    """How many runs are in no figure, and why, except a search's exploring runs, which belong in none."""
    whys = Counter(why for run, _, why in task.excluded if not grouping.is_censored(run) and EXPLORING not in why)
    if not whys:
        return None
    num, total = whys.total(), len(task.runs) + len(task.excluded)
    counts = ", ".join(f"{why} ({number})" for why, number in whys.most_common())
    values = {
        "num": num,
        "total": total,
        "are": "is" if num == 1 else "are",
        "whys": dict(whys.most_common()),
        "counts": counts,
    }
    return Sentence("not counted", task.title, values)


def _more_often(title: str, setting: Setting, pairs: Sequence[Comparison]) -> Sentence | None:
    """The settings that the best one beats by how often it reaches the target; None without any."""
    others = [pair.worse if pair.better == setting else pair.better for pair in pairs if pair.more_often == setting]
    than = [other.name for other in others]
    values = {**phrases.subject(setting, "reach"), "than": than, "named": phrases.names(others) if others else ""}
    return Sentence("best more often", title, values) if others else None


def _cheapest(task: Task, metric: str, leader: Setting) -> Sentence | None:
    """The cheapest setting; None without mean costs of two settings, if these are equal, or if cost ranks the settings.

    None if the lowest mean is only a lower bound, too: runs that missed the target leave open what it is.
    """
    means = [(mean, setting) for setting in task.settings if (mean := estimate(setting.measured(COST)))]
    if len(means) < 2 or metric == COST:
        return None
    (lowest, cheapest), (following, _) = sorted(means, key=lambda each: each[0].mean)[:2]
    if lowest.bound or math.isclose(lowest.mean, following.mean):
        return None
    values = phrases.figure(cheapest, COST, "")
    if cheapest.name == leader.name:
        return Sentence("cheapest too", task.title, values)
    return Sentence("cheapest", task.title, values | phrases.subject(cheapest, "have"))


def _limit(title: str, setting: Setting) -> Sentence | None:
    """What limits the setting, and what to try first; None if no run recorded it."""
    means = {name: estimate(setting.measured(quantities.bottleneck(name))) for name in NAMES}
    shares = {name: mean.mean for name, mean in means.items() if mean}
    if not shares:
        return None
    cause = limit(shares)
    share = shares.get(cause, 0.0)
    values = {**phrases.subject(setting, "are"), "cause": NAMES[cause], "share": share, "percent": f"{100 * share:.0f}"}
    shared = any(shared_cores(run.tags.get("neighbours", "")) for run in setting.trained)
    advice = first_try(cause, RunOptions(setting.trained[0].params))
    return Sentence("limit", title, values | {"next": alone_first(cause, advice, shared)})


def goodput(title: str, setting: Setting) -> Sentence | None:
    """The share of the time from submission to end that was training; None if not recorded."""
    trained = estimate(setting.measured(quantities.goodput("train")))
    if trained is None:
        return None
    values = {"setting": phrases.name(setting), "trained": trained.mean, "percent": f"{100 * trained.mean:.0f}"}
    return Sentence("goodput", title, values)
