"""The style of every figure of a report: points, lines and bars.

Colour-blind people can distinguish the colours, which are those of Okabe and Ito (jfly.uni-koeln.de/color). Markers,
lines and hatches differ too, for print without colour.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracking.base.safe_text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
MARKERS = "osD^vPX*"
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)))
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo")
MOST_LINES = len(COLOURS)
MOST_WORKLOADS = 2 * MOST_LINES  # each style with a filled marker, then with a hollow one
MOST_BARS = 24


@dataclass(frozen=True)
class Point:
    """A mean with its standard error (0 if unknown).

    `at_least` or `at_most`: a bound of the true mean, since some runs missed their target. `x_at_least`: so is `x`.
    """

    x: float
    y: float
    error: float = 0.0
    x_error: float = 0.0
    at_least: bool = False
    at_most: bool = False
    x_at_least: bool = False

    @property
    def bound(self) -> bool:
        return self.at_least or self.at_most or self.x_at_least


Lines = Mapping[str, Sequence[Point]]
NOTHING = Point(0.0, float("nan"))


def png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, Any]:
    """An empty figure of `width` x `height` inches, and its panels, row by row."""
    from matplotlib.figure import Figure  # not pyplot: no window, no state

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels:
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def plain(name: str) -> str:
    """A name from runs without control characters; `$` is escaped, or matplotlib would read a formula."""
    return visible(name).replace("$", r"\$")


def style_of(place: int) -> dict[str, Any]:
    """The style of the line at this place; from the ninth on with hollow markers."""
    hollow = {"markerfacecolor": "white"} if place // MOST_LINES % 2 else {}
    place %= MOST_LINES
    return {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": LINES[place], "markersize": 5, **hollow}


def draw_lines(axes: Axes, lines: Lines, markers: bool = True) -> None:
    uncertain = any(point.error for points in lines.values() for point in points)  # legends split the kinds
    for place, (name, points) in enumerate(lines.items()):
        x, y, errors = ([getattr(point, attribute) for point in points] for attribute in ("x", "y", "error"))
        style = style_of(place) if markers else {**style_of(place), "marker": ""}
        if uncertain:
            axes.errorbar(x, y, errors, capsize=3, linewidth=1.5, label=plain(name), **style)
        else:
            axes.plot(x, y, linewidth=1.5, label=plain(name), **style)
        mark_bounds(axes, points, style)


def mark_bounds(axes: Axes, points: Iterable[Point], style: Mapping[str, Any]) -> None:
    """Draw the marks of bounds hollow, each with the direction in which the true mean is."""
    hollow = {**style, "linestyle": "", "markerfacecolor": "white", "zorder": 3}
    for point in (point for point in points if point.bound):
        axes.plot(point.x, point.y, **hollow)
        sign = "≤" if point.at_most else "≥"
        axes.annotate(sign, (point.x, point.y), xytext=(6, 0), textcoords="offset points", va="center", size=12)


def add_legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    if names:
        fitting = int(figure.get_figwidth() * 15 / (max(map(len, names)) + 8))
        columns = max(1, min(4, len(names), fitting))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def draw_bars(axes: Axes, values: Mapping[str, Point], label: str) -> None:
    for place, (name, point) in enumerate(values.items()):
        error = point.error or None
        place = place if len(values) <= MOST_LINES else 0  # more bars than styles: all get the first style
        look: dict[str, Any] = {"color": COLOURS[place], "hatch": HATCHES[place]}
        axes.barh(plain(name), point.y, xerr=error, capsize=3, ecolor="black", edgecolor="white", height=0.7, **look)
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.tick_params(axis="y", labelsize=8)
