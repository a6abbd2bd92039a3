"""Which settings reach their target within a time, how sure that is, and the table of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tracking.analysis.compare import Estimate, Setting, Task, estimate
from tracking.analysis.results import Cell, Table
from tracking.analysis.statistics import proven_share
from tracking.base import quantities

TIME, COST = quantities.TIME_TO_ACCURACY_SEC, quantities.COST_TO_ACCURACY_USD
LIMIT = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d)")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
NOTE = (
    "A setting is in time if every run of it was. A run that crashed, or was stopped before the limit, does not count."
    " At least: the share of such runs that is in time, with 95 % confidence (Clopper and Pearson)."
    " Nearest: the setting with the largest share of runs in time."
)
COLUMNS = ("workload", "within", "fewest devices", "devices", "time to accuracy", "runs in time")
OF_COSTS = ("cheapest", "its cost (USD)", "its time to accuracy", "its runs in time")


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


def within_table(tasks: Sequence[Task], limits: Sequence[str]) -> Table:
    """The table with a row for each workload and limit. Raises ValueError for a limit without a unit."""
    rows: list[list[Cell]] = []
    seconds = {limit: seconds_of(limit) for limit in limits}
    lines = [(task, limit, made) for task in tasks for limit in limits if (made := fits(task, seconds[limit]))]
    priced = any(fit.cost for _, _, made in lines for fit in made)
    for task, limit, made in lines:
        fewest, least = smallest(made), cheapest(made)
        shown = fewest or nearest(made)
        assert shown is not None
        name = shown.setting.name if fewest else f"none; nearest: {shown.setting.name}"
        row: list[Cell] = [task.title, limit, name, f"{shown.setting.devices:g}", time_text(shown.time), words(shown)]
        if priced:
            row += [least.setting.name, cost_text(least), time_text(least.time), words(least)] if least else [""] * 4
        rows.append(row)
    columns = dict.fromkeys([*COLUMNS, *(OF_COSTS if priced else ())], "")
    note = NOTE if rows else "No run has a time to accuracy."
    return Table("In time", columns, rows, note, "within")


def words(fit: Fit) -> str:
    return f"{fit.num_in_time} of {fit.n}, at least {100 * fit.proven:.0f} %"


def cost_text(fit: Fit) -> str:
    assert fit.cost is not None
    return fit.cost.text(fit.setting.usual_n(COST))


def time_text(time: Estimate) -> str:
    """Seconds below two minutes, minutes below an hour, then hours and minutes: `7:45 ± 0:12 h`, `7:45 h ± 20 s`."""
    if time.mean < 3600:
        scale, unit = (1, " s") if time.mean < 120 else (60, " min")
        error = None if time.error is None else time.error / scale
        return Estimate(time.mean / scale, error, time.n, bound=time.bound).text(unit=unit)
    shown = f"{time.bound} {_clock(time.mean)}".lstrip()
    if time.error is None:
        return f"{shown} h"
    return f"{shown} h ± {time.error:.2g} s" if time.error < 60 else f"{shown} ± {_clock(time.error)} h"


def _clock(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,}:{minutes:02}"
