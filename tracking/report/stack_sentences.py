"""What a report says of the best and the worst stack: by what factor, what that is worth, or what would decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracking.compare import Extremes, Setting, estimate, estimates
from tracking.report.pictures import COST
from tracking.report.sentences import Sentence

OF_MISSES = "runs that did not reach the target have no spread"
OF_EQUALS = "the means are equal, or nobody makes so many"
CONFIDENCE = 1 - estimates.ALPHA


def verdict(task: str, metric: str, widest: Extremes) -> list[Sentence]:
    """The sentences on a pair of stacks: whether one is best, and what it saves; or else what would decide."""
    pair = widest.pair
    values: dict[str, Any] = {"workload": task, "among": among(widest.among), "factor": pair.factor, **_names(widest)}
    if pair.adjusted is None:
        few = [setting.name for setting in (pair.better, pair.worse) if setting.times(metric).n < 2]
        return [Sentence("stack of one run", task, values | {"few": " and of ".join(few)})]
    values |= _interval(widest)
    if pair.told_apart:
        return [Sentence("best stack", task, values), *_worth(task, widest)]
    return [Sentence("no best stack", task, values), _what_decides(task, metric, widest)]


def among(labels: Mapping[str, str]) -> str:
    """Among which settings stacks are compared; "" where they differ in nothing else."""
    return "".join(f", {axis}={value}" for axis, value in labels.items())


def _names(widest: Extremes) -> dict[str, Any]:
    """The two stacks, by their own axes; and `pair`, the names of the whole settings."""
    names = [
        replace(
            setting, labels={axis: value for axis, value in setting.labels.items() if axis not in widest.among}
        ).name
        for setting in (widest.pair.better, widest.pair.worse)
    ]
    return {"better": names[0], "worse": names[1], "pair": [widest.pair.better.name, widest.pair.worse.name]}


def _interval(widest: Extremes) -> dict[str, Any]:
    """The bounds of the factor as numbers (None: there is none) and in words."""
    if widest.bounds is None:
        return {"low": None, "high": None, "interval": ""}
    low, high = widest.bounds
    if math.isfinite(high):
        words = f"{low:.3g} to {high:.3g}" if low else f"up to {high:.3g}"
    else:
        words = f"{low:.3g} or more" if low else "any"
    stacks = f" for all {widest.num_stacks} stacks at once" if widest.num_stacks > 2 else ""
    values = {"low": low, "high": high if math.isfinite(high) else None}
    values |= {"confidence": CONFIDENCE, "num_stacks": widest.num_stacks}
    return values | {"interval": f" ({words}, with {CONFIDENCE:.0%} confidence{stacks})"}


def _worth(task: str, widest: Extremes) -> list[Sentence]:
    """What the better stack saves; nothing without prices."""
    saved, sides = widest.saved_usd, (widest.pair.better, widest.pair.worse)
    if saved is None:
        return []
    usd = [_usd(setting) for setting in sides]
    cheaper = saved.mean >= 0
    shown = saved if cheaper else replace(saved, mean=-saved.mean, bound={"≥": "≤", "≤": "≥"}.get(saved.bound, ""))
    values = {
        **_names(widest), "mean": shown.mean, "standard_error": shown.error, "difference": shown.text(),
        "better_usd": usd[0], "worse_usd": usd[1],
    }  # fmt: skip
    return [Sentence("best stack saves" if cheaper else "best stack costs", task, values)]


def _usd(setting: Setting) -> str:
    cost = estimate(setting.times(COST))
    assert cost is not None
    return replace(cost, olympic=None, invalid=False).text()


def _what_decides(task: str, metric: str, widest: Extremes) -> Sentence:
    names = _names(widest)
    if widest.num_runs is not None:
        values = {"num_runs": widest.num_runs, "num_more": widest.num_more, "power": estimates.POWER}
        return Sentence("runs that would decide", task, names | values)
    missed = any(setting.times(metric).num_short for setting in (widest.pair.better, widest.pair.worse))
    return Sentence("decides when", task, names | {"why": OF_MISSES if missed else OF_EQUALS})
