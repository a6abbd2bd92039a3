"""A study of stacks as a figure: time over drivers, a curve per version of CUDA (torch, ...), a panel per GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracking.analysis.report.pictures.drawing import Point, add_legend, draw_lines, new_figure, plain, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# By curve, the point of each driver.
Curves = Mapping[str, Mapping[str, Point]]
COLUMNS = 3  # panels in a row
ROOM = 36  # characters of drivers' names that fit below a panel side by side
DRIVERS = "NVIDIA driver (version)"
APART = 0.07  # offset between curves at the same driver; drivers are 1 apart


def stacks(panels: Mapping[str, Curves], drivers: Sequence[str], label: str) -> Figure:
    """A panel for each GPU, with the drivers on x in the given order. A missing point is a gap in its curve."""
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    columns = min(len(panels), COLUMNS)
    rows = math.ceil(len(panels) / COLUMNS)
    turned = max(map(len, drivers)) * len(drivers) > ROOM
    width, height = max(7.0, 4.4 * columns), (3.4 + 0.4 * turned) * rows + 0.8
    figure, every = new_figure(width, height, columns, rows)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    for axes, (gpu, curves) in zip(every, panels.items(), strict=False):
        _draw(axes, {name: curves.get(name, {}) for name in names}, drivers)  # one style in all panels
        axes.set_title(plain(gpu), fontsize=10)
        axes.set_xlabel(DRIVERS)
        axes.set_ylabel(label)
        turn = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if turned else {}
        axes.set_xticks(range(len(drivers)), list(map(plain, drivers)), **turn)
    add_legend(figure, every[0])
    return figure


def over_drivers(curves: Curves, drivers: Sequence[str]) -> dict[str, list[Point]]:
    """The points of each curve; x is the place of the point's driver in `drivers`."""
    return {
        name: [replace(points[driver], x=float(place)) for place, driver in enumerate(drivers) if driver in points]
        for name, points in curves.items()
    }


def _draw(axes: Axes, curves: Curves, drivers: Sequence[str]) -> None:
    apart = min(APART, 0.7 / len(curves))
    moved = {name: apart * (number - (len(curves) - 1) / 2) for number, name in enumerate(curves)}
    lines = {
        name: [
            replace(points[driver], x=place + moved[name])
            if driver in points
            else Point(place + moved[name], math.nan)  # A line breaks off at NaN.
            for place, driver in enumerate(drivers)
        ]
        for name, points in curves.items()
    }
    draw_lines(axes, lines)
    axes.set_xlim(-0.5, len(drivers) - 0.5)
    _mark_gaps(axes, lines)


def _mark_gaps(axes: Axes, lines: Mapping[str, Sequence[Point]]) -> None:
    """Make room at the foot for a hollow mark for each missing point."""
    gaps = {name: [point.x for point in points if math.isnan(point.y)] for name, points in lines.items()}
    if not any(gaps.values()):
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.12 * (high - low), high)
    for number, places in enumerate(gaps.values()):
        style = style_of(number) | {"linestyle": "", "markerfacecolor": "none", "markersize": 5}
        axes.plot(places, [0.04] * len(places), transform=axes.get_xaxis_transform(), **style)
    hollow: dict[str, Any] = {"fmt": "o", "color": "#555555", "markerfacecolor": "none", "markersize": 5}
    axes.errorbar([], [], label="hollow, at the foot: missing", **hollow)
