"""The settings of a workload by the report's metric: each mean with its standard error, its runs, and the winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from tracking.analysis.compare import Best, Task, estimate, ranked
from tracking.analysis.report.pictures.drawing import COLOURS, MOST_BARS, Point, new_figure, plain
from tracking.analysis.report.pictures.plot import Panel, Plot, drawn
from tracking.analysis.report.pictures.plot_data import as_point, bounds_of
from tracking.base import quantities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINNER, CANDIDATE, BEHIND = COLOURS[0], COLOURS[5], "#bbbbbb"
LINE_CHARS, MOST_LINES = 36, 3  # of a setting's name
RUNS = "runs"  # the title of the data of single runs


def ranking(task: Task, metric: str, chosen: Best | None) -> Plot | None:
    """The picture, with the best setting first; None for a single setting, or if settings cannot be ranked."""
    if chosen is None or chosen.next is None:
        return None
    means, runs, texts = {}, {}, {}
    for setting in ranked(task.settings, metric, chosen.leader)[:MOST_BARS]:
        if mean := estimate(setting.measured(metric)):
            means[setting.name] = [as_point(0.0, mean)]
            runs[setting.name] = [Point(0.0, value) for value in setting.measured(metric).reached]
            texts[setting.name] = mean.text(unit=quantities.unit(metric)).partition(" (olympic")[0]
    places = [chosen.leader.name, *(setting.name for setting in chosen.tied)]
    colours = {name: BEHIND if name not in places else CANDIDATE if places.index(name) else WINNER for name in means}
    label = quantities.quantity(metric).heading if quantities.quantity(metric).scale == 1 else ""
    label = label or metric
    tied = ", light blue: too little is known to tell it from the best" if chosen.tied else ""
    tied = ", light blue: not tested, since a search looked at the runs" if chosen.searched and tied else tied
    caption = f"{label}: means with standard errors, and each run as a dot; blue: the best mean{tied}"
    caption += bounds_of(means.values(), metric)
    panels = [Panel("", label, means, metric), Panel("", label, runs, metric, RUNS)]
    figure = _draw({name: points[0] for name, points in means.items()}, runs, colours, texts, label)
    return drawn("settings", caption, figure, panels)


def _draw(
    means: Mapping[str, Point], runs: Mapping[str, Sequence[Point]], colours: Mapping[str, str],
    texts: Mapping[str, str], label: str,
) -> Figure:  # fmt: skip
    # A long name would leave no room for the bars.
    names = ["\n".join(map(plain, wrap(name, LINE_CHARS, max_lines=MOST_LINES, placeholder=" ..."))) for name in means]
    extra_lines = sum(name.count("\n") for name in names)
    figure, (axes,) = new_figure(8, 1.2 + 0.42 * len(means) + 0.16 * extra_lines)
    for place, (name, point) in enumerate(means.items()):
        axes.barh(place, point.y, color="white" if point.bound else colours[name], edgecolor=colours[name], height=0.62)
        axes.errorbar(point.y, place, xerr=point.error or None, color="black", capsize=4, linewidth=1.2)
        values = [run.y for run in runs[name]]
        axes.plot(values, [place] * len(values), "o", color="white", markeredgecolor="black", markersize=4)
        right = max([point.y + point.error, *values])
        look = {"weight": "bold"} if colours[name] == WINNER else {}
        axes.annotate(
            texts[name], (right, place), xytext=(7, 0), textcoords="offset points", va="center", size=9, **look
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(means) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.set_xlim(left=0) if min(point.y for point in means.values()) >= 0 else None
    axes.set_xlabel(label)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_formatter("{x:,g}")
    return figure
