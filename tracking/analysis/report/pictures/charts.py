"""Draw a report's figures: plain data in, a matplotlib figure out. `drawing` holds their style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

from conf.target import limit
from tracking.analysis.report.pictures.drawing import (
    MOST_BARS,
    MOST_LINES,
    NOTHING,
    Lines,
    Point,
    add_legend,
    draw_bars,
    draw_lines,
    mark_bounds,
    new_figure,
    plain,
    style_of,
)
from tracking.analysis.report.pictures.plot import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ABREAST = 4  # the most panels in a row
NEVER: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({})


def accuracy(panels: Sequence[Panel]) -> Figure:
    """Each metric over epochs and over time, two panels in a row: a line for each setting, and the target."""
    from matplotlib.ticker import MaxNLocator

    rows = len(panels) // 2
    figure, places = new_figure(9, 3.6 * rows + 0.4, 2, rows)
    for place, (axes, panel) in enumerate(zip(places, panels, strict=True)):
        draw_lines(axes, panel.lines)
        axes.set_xlabel(panel.x)
        highest = max((point.y for points in panel.lines.values() for point in points), default=0.0)
        axes.set_ylabel(plain(f"{panel.y} (0 to 1)" if highest <= 1 else panel.y))
        if panel.target is not None:
            _draw_target(axes, limit(panel.target))
        if place % 2:
            axes.set_xlim(left=0)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(figure, places[0])
    return figure


def over_generations(panel: Panel) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = new_figure(8, 4)
    draw_lines(axes, panel.lines)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(figure, axes)
    return figure


def _draw_target(axes: Axes, target: float) -> None:
    axes.axhline(target, color="#555555", linewidth=1)
    axes.annotate(
        f"target {target:g}", (0.01, target), xytext=(0, 2), xycoords=("axes fraction", "data"),
        textcoords="offset points", size=8, bbox={"color": "white", "pad": 0.5, "alpha": 0.8},
    )  # fmt: skip


def reached(steps: Lines, given_up: Lines) -> Figure:
    """The share of runs at the target over time: a step line for each setting, a cross for each run given up."""
    figure, (axes,) = new_figure(8, 4)
    end = max(point.x for lines in (steps, given_up) for points in lines.values() for point in points)
    for place, (name, points) in enumerate(steps.items()):
        style = {**style_of(place), "marker": ""}
        x, y = [0.0, *(point.x for point in points), 1.05 * end], [0.0, *(point.y for point in points)]
        axes.step(x, [*y, y[-1]], where="post", linewidth=1.5, label=plain(name), **style)
        crosses = given_up.get(name, [])
        look = {"marker": "x", "linestyle": "", "color": style["color"]}
        axes.plot([point.x for point in crosses], [point.y for point in crosses], **look)
    crossed = "; x: a run was given up" if any(given_up.values()) else ""
    axes.set_xlabel(f"time since the clock started (s{crossed})")
    axes.set_ylabel("share that has reached the target (0 to 1)")
    axes.set_xlim(left=0)
    axes.set_ylim(-0.02, 1.05)
    add_legend(figure, axes)
    return figure


def scaling(seconds: Lines, speed_ups: Lines, unit: str) -> Figure:
    """Time and speed-up over the number of devices, beside ideal scaling; both axes logarithmic."""
    from matplotlib.ticker import LogLocator

    figure, (left, right) = new_figure(9, 4, 2)
    counts = sorted({point.x for points in seconds.values() for point in points})
    draw_lines(left, seconds)
    for points in seconds.values():
        first = points[0]
        left.plot(
            counts, [first.y * first.x / count for count in counts], color="#888888", linewidth=0.8, linestyle=":"
        )
    draw_lines(right, speed_ups)
    right.plot(counts, [count / counts[0] for count in counts], color="#888888", linewidth=0.8, linestyle=":")
    for axes, label in ((left, unit), (right, "speed-up (times the fewest devices)")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(counts, [f"{count:g}" for count in counts])
        axes.yaxis.set_major_locator(LogLocator(base=2, numticks=12))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("devices (number; dotted: ideal scaling)")
        axes.set_ylabel(label)
    add_legend(figure, left)
    return figure


def beside_lines(panels: Mapping[str, Lines], label: str) -> Figure:
    """A panel for each quantity, over a count on a logarithmic axis, with a line for each side."""
    figure, axes = panels_in_rows(len(panels), 3.3, 3.6)
    for panel, (quantity, lines) in zip(axes, panels.items(), strict=True):
        draw_lines(panel, lines)
        counts = sorted({point.x for points in lines.values() for point in points})
        panel.set_xscale("log", base=2)
        panel.set_xticks(counts, [f"{count:g}" for count in counts])
        panel.set_xlabel(label)
        panel.set_ylabel(quantity)
        panel.set_ylim(bottom=0)
    add_legend(figure, axes[0])
    return figure


def bars(values: Mapping[str, Point], label: str) -> Figure:
    """A horizontal bar for each setting, with its error."""
    shown = list(values.items())[:MOST_BARS]
    figure, (axes,) = new_figure(8, 1.3 + 0.32 * len(shown))
    draw_bars(axes, dict(shown), label)
    return figure


def utilisation(panels: Mapping[str, Lines], evaluated: Mapping[str, Sequence[tuple[float, float]]] = NEVER) -> Figure:
    """A panel for each of GPU, CPU, disk, network and so on, over time, with a line for each setting.

    `evaluated` holds, by setting, the seconds at which each epoch and its evaluation ended. At the lower edge, a stroke
    marks the end of the epoch, and a bar the evaluation.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    figure, axes = panels_in_rows(len(panels), 3.1, 3.3)
    for panel, (label, lines) in zip(axes, panels.items(), strict=True):
        draw_lines(panel, {name: lines.get(name, []) for name in names}, markers=False)  # one style in all panels
        for place, name in enumerate(names):
            spans = [span for span in evaluated.get(name, ()) if name in lines]
            look = {"color": style_of(place)["color"], "transform": panel.get_xaxis_transform()}
            panel.plot([begin for begin, _ in spans], [0.015] * len(spans), "|", markersize=6, **look)
            panel.hlines([0.015] * len(spans), *zip(*spans, strict=True), linewidth=3, **look) if spans else None
        panel.axvline(0, color="#555555", linewidth=1)
        panel.set_xlabel("time since the clock started (s)")
        panel.set_ylabel(label)
        panel.yaxis.set_major_formatter("{x:,g}")
        panel.set_ylim(0, 105 if "%" in label else None)
        if any(point.x > 0 for points in lines.values() for point in points):
            left, right = panel.get_xlim()  # a long cold start must not hide a short training
            panel.set_xlim(left=max(left, -right))
    add_legend(figure, axes[0])
    return figure


def mean_utilisation(panels: Mapping[str, Mapping[str, Point]]) -> Figure:
    """A panel for each of GPU, CPU, disk and network: the mean of each workload, with its error over settings."""
    names = list(dict.fromkeys(name for values in panels.values() for name in values))
    beside = 0.5 + 0.07 * max(map(len, names))  # the workloads' names stand left of the first panel
    figure, axes = panels_in_rows(len(panels), 2.8, 1.4 + 0.35 * len(names), beside)
    for place, (panel, (label, values)) in enumerate(zip(axes, panels.items(), strict=True)):
        draw_bars(panel, {name: values.get(name, NOTHING) for name in names}, label)  # the same rows in all panels
        if place % ABREAST:
            panel.set_yticklabels([])
    return figure


def panels_in_rows(number: int, width: float, height: float, beside: float = 0.5) -> tuple[Figure, list[Axes]]:
    """A figure of `number` panels of `width` x `height` inches, at most ABREAST in a row, with `beside` more inches."""
    columns = min(number, ABREAST)
    rows = -(-number // columns)
    figure, places = new_figure(width * columns + beside, height * rows + 0.3, columns, rows)
    for spare in places[number:]:
        spare.remove()
    return figure, list(places[:number])


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of the points (time, cost) on the Pareto front, in order of time."""
    places = sorted(range(len(points)), key=lambda place: points[place])
    front: list[int] = []
    for place in places:
        if not front or points[place][1] < points[front[-1]][1]:
            front.append(place)
    return front


def front(settings: Mapping[str, Point], label: str) -> Figure:
    """Cost or energy against time: a mark for each setting, and the Pareto front of those whose means are known.

    If there are many settings, those on the front are named first, then the quickest; the others are grey.
    """
    figure, (axes,) = new_figure(7, 4.5)
    names, points = list(settings), list(settings.values())
    known = [place for place, point in enumerate(points) if not point.bound]
    best = [known[number] for number in pareto([(points[place].x, points[place].y) for place in known])]
    order = dict.fromkeys([*best, *sorted(range(len(points)), key=lambda place: points[place].x)])
    named = sorted(list(order)[:MOST_LINES])
    for place in (place for place in range(len(points)) if place not in named):
        grey = {"color": "#bbbbbb", "marker": "o", "markersize": 4}
        axes.plot(points[place].x, points[place].y, zorder=1, **grey)
        mark_bounds(axes, [points[place]], grey)
    for number, place in enumerate(named):
        point, style = points[place], style_of(number) | {"linestyle": "", "markersize": 7}
        axes.errorbar(
            point.x, point.y, point.error or None, point.x_error or None, capsize=3, elinewidth=1,
            label=plain(names[place]), **style,
        )  # fmt: skip
        mark_bounds(axes, [point], style)
    for sooner, later in pairwise(points[place] for place in best):  # steps: between two, nothing better is known
        axes.plot([sooner.x, later.x, later.x], [sooner.y, sooner.y, later.y], color="#888888", linewidth=1, zorder=0)
    if len(best) > 1:
        axes.plot([], [], color="#888888", linewidth=1, label="Pareto front")
    if len(named) < len(points):
        axes.plot([], [], "o", color="#bbbbbb", markersize=4, label=f"{len(points) - len(named)} other settings")
    axes.set_xlabel("time to accuracy (s)")
    axes.set_ylabel(label)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    add_legend(figure, axes)
    return figure
