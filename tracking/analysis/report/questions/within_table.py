"""What fits in a working day: for each workload, the setting in time with the fewest devices, and the cheapest."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.compare import Estimate, Task
from tracking.analysis.report.questions import within
from tracking.analysis.report.questions.within import Fit
from tracking.analysis.results import Cell, Table

NOTE = (
    "A setting is in time if every run of it was. A run that crashed, or was stopped before the limit, does not count."
    " At least: the share of such runs that is in time, with 95 % confidence (Clopper and Pearson)."
    " Nearest: the setting with the largest share of runs in time."
)
COLUMNS = ("workload", "within", "fewest devices", "devices", "time to accuracy", "runs in time")
OF_COSTS = ("cheapest", "its cost (USD)", "its time to accuracy", "its runs in time")


def within_table(tasks: Sequence[Task], limits: Sequence[str]) -> Table:
    """The table with a row for each workload and limit. Raises ValueError for a limit without a unit."""
    rows: list[list[Cell]] = []
    seconds = {limit: within.seconds_of(limit) for limit in limits}
    lines = [(task, limit, made) for task in tasks for limit in limits if (made := within.fits(task, seconds[limit]))]
    priced = any(fit.cost for _, _, made in lines for fit in made)
    for task, limit, made in lines:
        smallest, cheapest = within.smallest(made), within.cheapest(made)
        shown = smallest or within.nearest(made)
        assert shown is not None
        name = shown.setting.name if smallest else f"none; nearest: {shown.setting.name}"
        row: list[Cell] = [task.title, limit, name, f"{shown.setting.devices:g}", time_text(shown.time), words(shown)]
        if priced:
            row += (
                [cheapest.setting.name, cost_text(cheapest), time_text(cheapest.time), words(cheapest)]
                if (cheapest)
                else ["", "", "", ""]
            )
        rows.append(row)
    columns = dict.fromkeys([*COLUMNS, *(OF_COSTS if priced else ())], "")
    note = NOTE if rows else "No run has a time to accuracy."
    return Table("In time", columns, rows, note, "within")


def words(fit: Fit) -> str:
    return f"{fit.num_in_time} of {fit.n}, at least {100 * fit.proven:.0f} %"


def cost_text(fit: Fit) -> str:
    assert fit.cost is not None
    return fit.cost.text(fit.setting.usual_n(within.COST))


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
