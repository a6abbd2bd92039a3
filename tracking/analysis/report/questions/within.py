"""Which settings reach their target within a time, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tracking.analysis.compare import Estimate, Setting, Task, estimate
from tracking.analysis.statistics import proven_share
from tracking.base import quantities

TIME, COST = quantities.TIME_TO_ACCURACY_SEC, quantities.COST_TO_ACCURACY_USD
LIMIT = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d)")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Fit:
    """A setting against a limit of time: `num_in_time` of its `n` known runs reached the target by then."""

    setting: Setting
    time: Estimate
    cost: Estimate | None
    num_in_time: int
    n: int

    @property
    def fits(self) -> bool:
        return 0 < self.num_in_time == self.n

    @property
    def proven(self) -> float:
        """The lower bound of the share of runs in time, with 95 % confidence."""
        return proven_share(self.num_in_time, self.n)


def seconds_of(limit: str) -> float:
    """The seconds of `8h`, `90min`, `30s` or `2d`. Raises ValueError for other words."""
    parts = LIMIT.fullmatch(limit)
    if parts is None or not float(parts[1]):
        raise ValueError(
            f"--within {limit}: not a time. Allowed: numbers above 0 with a unit (s, min, h or d), as in 8h,4h,90min"
        )
    return float(parts[1]) * SECONDS[parts[2]]


def fits(task: Task, limit_sec: float) -> list[Fit]:
    """The settings with a known time and number of devices, in the task's order."""
    made = []
    for setting in task.settings:
        times = setting.measured(TIME)
        time = estimate(times)
        good = sum(value <= limit_sec for value in times.reached)
        # A run that was stopped before the limit is unknown: it may have been in time.
        n = len(times.reached) + setting.num_missed + sum(value >= limit_sec for value in times.stopped)
        if time and n and setting.devices:
            made.append(Fit(setting, time, estimate(setting.measured(COST)), good, n))
    return made


def smallest(candidates: Sequence[Fit]) -> Fit | None:
    """The fitting setting with the fewest devices; the quickest of several."""
    return min(
        (fit for fit in candidates if fit.fits), key=lambda fit: (fit.setting.devices, fit.time.mean), default=None
    )


def cheapest(candidates: Sequence[Fit]) -> Fit | None:
    """The fitting setting with the lowest cost to the target; None without prices.

    Costs that are only lower bounds come after known ones.
    """
    priced = [
        (bool(fit.cost.bound), fit.cost.mean, fit.time.mean, place)
        for place, fit in enumerate(candidates)
        if fit.fits and fit.cost
    ]
    return candidates[min(priced)[3]] if priced else None


def nearest(candidates: Sequence[Fit]) -> Fit | None:
    """The setting with the largest share of runs in time; the quickest of several."""
    return min(candidates, key=lambda fit: (-fit.num_in_time / fit.n, fit.time.mean), default=None)
