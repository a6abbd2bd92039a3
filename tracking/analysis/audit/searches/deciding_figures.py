"""The figures of a search's finalists by their deciding runs: means, intervals, ratios, and what is beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from conf.metric import LOWER
from tracking.analysis.audit.arithmetic import factor_bounds, interval_of_mean, tolerance
from tracking.analysis.audit.evidence import Near
from tracking.analysis.audit.searches.standing import Look, Standing, best_of_groups
from tracking.analysis.audit.searches.trials import KEYS, Trial
from tracking.base import quantities
from tracking.base.number_text import significant

GROUPS = ("gpus", "cpu_processes", "nodes")  # the first of these that is searched forms the groups
BESIDE = {
    "samples_per_sec": quantities.THROUGHPUT_SAMPLES_PER_SEC,
    "epochs": quantities.EPOCHS_TO_ACCURACY,
    "cost_usd": quantities.COST_TO_ACCURACY_USD,
    "energy_joules": quantities.ENERGY_TO_ACCURACY_JOULES,
}
OFF = 1e-6  # tolerance of bounds that are found numerically
Settings = Mapping[str, Mapping[str, Any]]


def groups_of(settings: Settings, axes: Sequence[str]) -> dict[str, Any]:
    """The group of each setting, such as its number of GPUs; None if no list of such numbers is searched."""
    searched = {word.partition("=")[0]: word for word in axes}
    key = next((key for key in GROUPS if key in searched), "")
    grouped = key and "interval(" not in searched[key]
    return {name: setting.get(key) if grouped else None for name, setting in settings.items()}


def due(
    standing: Standing, whole: Look, finalists: Sequence[str], settings: Settings, groups: Mapping[str, Any],
    error: float,
) -> dict[str, Any]:  # fmt: skip
    """The figures by setting, those of the named one, and the best of each group beside it.

    The other metrics beside a figure are means over `whole`, all blocks that were run.
    """
    last, best = standing.last, best_of_groups(standing.last, standing.members, groups)
    level = error / 2 / max(1, len(standing.candidates) if standing.num_looks else 1)
    figures = {name: _figure(last, whole, name, settings[name], level, name in best.values()) for name in settings}
    own = standing.named
    others = {group: name for group, name in best.items() if own and group != groups[own]}
    by_group = {
        str(group): {
            "group": group,
            "best": figures[name],
            **_beside(last, whole, own, name, standing.level / 2 / max(1, len(others)), group in others),
        }
        for group, name in best.items()
    }
    value = {"value": figures[own] if own else None, "unbiased": Near(_unbiased(last, own), 1e-5)}
    tolerated = _tolerance(standing, own) if own and len(finalists) > 1 else None
    return {"figures": figures, "groups": by_group, **value, "tolerance": _finite(tolerated)}


def _unbiased(look: Look, own: str | None) -> float | None:
    """The named setting's mean, corrected for the luck of being the lowest."""
    if own is None:
        return None
    return fmean(look.sample(own).numbers) * math.exp(look.table.luck() if own in look.table.rows else 0.0)


def _tolerance(standing: Standing, own: str) -> float:
    """The share by which any candidate's mean may be below the named one's."""
    look = Look({name: standing.last.runs[name] for name in standing.candidates}, standing.last.num)
    rivals = [name for name in standing.candidates if name != own]
    return max([1.0, *(look.at_most(own, name, standing.level / len(rivals)) for name in rivals)]) - 1


def _finite(value: float | None) -> Near:
    return Near(None if value is None or math.isinf(value) else value, OFF, 1.0)


def _figure(
    look: Look, whole: Look, name: str, setting: Mapping[str, Any], level: float, best: bool
) -> dict[str, Any]:  # fmt: skip
    sample = look.sample(name)
    mean = fmean(sample.numbers) if sample.numbers else None
    several = len(sample.numbers) > 1
    low, high = interval_of_mean(sample.numbers, sample.interval, level) if several else (None, None)
    return {
        "setting": dict(setting),
        "n": len(sample),
        "mean": Near(mean, 1e-9),
        "low": Near(None if low is None else max(0.0, low), OFF, 1.0),
        "high": Near(high, OFF),
        "num_short": sample.num_short,
        "best_of_group": best,
        **{key: Near(_mean_of(whole, name, metric), tolerance(metric)) for key, metric in BESIDE.items()},
    }


def _mean_of(look: Look, name: str, metric: str) -> float | None:
    """The mean of a metric over a setting's runs that reached the target."""
    reached = [trial.run for trial in look.runs[name] if trial.number is not None]
    values = [value for run in reached if (value := run.value(metric)) is not None]
    return fmean(values) if values else None


def _beside(
    look: Look, whole: Look, own: str | None, name: str, level: float, is_other: bool
) -> dict[str, Any]:  # fmt: skip
    """The time of another group's best over the named setting's; the named one's cost and energy over the other's."""
    if own is None or not is_other:
        return {"ratio": None, "times_the_cost": None, "times_the_energy": None}
    first, second = look.sample(own), look.sample(name)
    bounds = factor_bounds(LOWER, first, second, level)
    ratio = None
    if bounds is not None and not (first.num_short and second.num_short):
        value = fmean(second.bounds(first)) / fmean(first.bounds(second))
        ratio = {"value": Near(value, 1e-9), "low": _finite(bounds[0]), "high": _finite(bounds[1])}
    times = {}
    for key, metric in (("times_the_cost", "cost_usd"), ("times_the_energy", "energy_joules")):
        top, bottom = (_mean_of(whole, each, BESIDE[metric]) for each in (own, name))
        short = first.num_short + second.num_short
        times[key] = Near(top / bottom if top and bottom and not short else None, OFF)
    return {"ratio": ratio, **times}


def front(trials: Sequence[Trial], drawn: Sequence[str]) -> dict[str, Any]:
    """The settings that no other one beats in both objectives, by their deciding runs; without any, by all runs."""
    keys = [KEYS[objective] for objective in drawn]
    short = {trial.name for trial in trials if not trial.explores and trial.state in ("stopped", "missed", "failed")}
    with_both = [
        (trial, values)
        for trial in trials
        if trial.run.ended and trial.run.hit_row is not None and trial.name not in short
        and None not in (values := [trial.run.value(key) for key in keys])
    ]  # fmt: skip
    chosen = [each for each in with_both if not each[0].explores] or with_both
    means = {}
    for name in dict.fromkeys(trial.name for trial, _ in chosen):
        own = [values for trial, values in chosen if trial.name == name]
        means[name] = [fmean(column) for column in zip(*own, strict=True)]
    settings = {trial.name: trial.asked["setting"] for trial, _ in chosen}
    return {
        name: {"setting": settings[name], **{each: Near(mean, 1e-9) for each, mean in zip(drawn, own, strict=True)}}
        for name, own in means.items()
        if not any(all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in means.values())
    }


def _bound(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The words before a ratio that is only a bound, since runs of one setting did not reach the target."""
    return "at least " if other["num_short"] else "at most " if own["num_short"] else ""


def said(claimed: Mapping[str, Any], name: str) -> tuple[bool, str]:
    """Whether the words have the figure and the counts of the answer; and the sentence to note if they do not."""
    value = claimed["value"]
    if value is None or value["mean"] is None:
        return True, ""
    interval = "" if value["low"] is None else f"{significant(value['low'], 4)} to {significant(value['high'], 4)}, "
    parts = [
        f"{significant(value['mean'], 4)} {claimed['unit']} ({interval}n = {value['n']}",
        f"{claimed['num_explored']} run", f"{claimed['num_decided']} decided: ",
        *(f"It is {_bound(value, group['best'])}{significant(group['ratio']['value'])} times "
          for group in claimed["groups"] if group["ratio"]),
    ]  # fmt: skip
    absent = [part for part in parts if part not in claimed["words"]]
    return not absent, f"{name}: its words lack {absent}"
