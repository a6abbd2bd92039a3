"""The settings of a workload, ranked by the report's metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from tracking.analysis.compare import UNTIL_CENSORED, Best, Setting, Task, censoring, estimate, estimates, ranked
from tracking.analysis.report.setting_tables import out_of_memory, shown_share
from tracking.analysis.results import Table
from tracking.base import quantities
from tracking.base.number_text import significant
from tracking.measure.bottleneck import NAMES, limit

KIND = "ranking"
TIMES = "times the best"
BEST, BEST_SO_FAR, NOT_TOLD, SEARCHED, TOLD = "best", "best so far", "may be as good", "see its search", ""
COST = quantities.COST_TO_ACCURACY_USD
BESIDE = (quantities.THROUGHPUT_SAMPLES_PER_SEC, COST)


def ranking_table(task: Task, axes: Sequence[str], metric: str, chosen: Best | None) -> Table | None:
    """A row for each setting, the best first; None for one setting, or if the metric's direction is not known."""
    if chosen is None or len(task.settings) < 2:
        return None
    facts = quantities.quantity(metric)
    columns: dict[str, Callable[[Setting], str]] = {
        "n": lambda setting: f"{len(setting.runs)} of {setting.total}{out_of_memory(setting)}",
        facts.heading or metric: lambda setting: _mean(setting, metric, facts.scale),
    }
    if chosen.next is not None:
        columns[TIMES] = lambda setting: _times(setting, chosen.leader, metric)
        columns["verdict"] = lambda setting: _place(setting, chosen)
    if metric in UNTIL_CENSORED and any(setting.num_missed or setting.stopped for setting in task.settings):
        columns["reached"] = shown_share
    for key in BESIDE:
        if key != metric and any(estimate(setting.measured(key)) for setting in task.settings):
            columns[quantities.quantity(key).heading] = _mean_of(key)
    if any(limited_by(setting) for setting in task.settings):
        columns["limited by"] = limited_by
    settings = ranked(task.settings, metric, chosen.leader)
    rows = [[*setting.labels.values(), *(cell(setting) for cell in columns.values())] for setting in settings]
    headings = dict.fromkeys([*axes, *columns], "")
    return Table(f"{task.title}: settings ranked", headings, rows, _note(chosen, metric), KIND, task.title)


def limited_by(setting: Setting) -> str:
    """What took most of the setting's time; "" if no run recorded it."""
    measured = {name: setting.measured(quantities.bottleneck(name)).reached for name in NAMES}
    shares = {name: fmean(values) for name, values in measured.items() if values}
    return NAMES[limit(shares)] if shares else ""


def _mean(setting: Setting, key: str, scale: float) -> str:
    mean = estimate(setting.measured(key), scale)
    return mean.text(setting.usual_n(key)) if mean else ""


def _mean_of(key: str) -> Callable[[Setting], str]:
    return lambda setting: _mean(setting, key, quantities.quantity(key).scale)


def _times(setting: Setting, leader: Setting, metric: str) -> str:
    """The setting's mean over the leader's; "" if a mean is not above 0 or is only a bound."""
    own, best = estimate(setting.measured(metric)), estimate(leader.measured(metric))
    if own is None or best is None or own.mean <= 0 or best.mean <= 0 or own.bound or best.bound:
        return ""
    return significant(own.mean / best.mean)


def _place(setting: Setting, chosen: Best) -> str:
    if any(setting.name == each.name for each in chosen.searched):
        return SEARCHED
    if setting.name == chosen.leader.name:
        return BEST if len(chosen.candidates) == 1 else BEST_SO_FAR
    return NOT_TOLD if any(setting.name == each.name for each in chosen.candidates) else TOLD


def _note(chosen: Best, metric: str) -> str:
    note = "n: runs averaged, of all."
    if any(setting.num_missed or setting.stopped for setting in chosen.settings):
        note += estimates.explained("≥", censoring.why_bound(COST))
    if metric not in UNTIL_CENSORED:
        signs = [setting.measured(metric).sign for setting in chosen.settings]
        note += estimates.explained(signs, censoring.why_bound(metric))
    if any(not setting.searched for setting in chosen.tied):
        note += f" {NOT_TOLD[0].upper()}{NOT_TOLD[1:]}: too little is known to tell."
    if chosen.searched and chosen.tied:
        note += f" {SEARCHED[0].upper()}{SEARCHED[1:]}: not tested here, since a search looked at the runs as it went;"
        note += " its answer is in its search.json."
    return note
