"""The figures of a report: plain data in, a matplotlib figure out. Colours of Okabe and Ito (jfly.uni-koeln.de/color),
which colour-blind people can tell apart; for print without colour, markers, lines and hatches differ as well."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from conf.safe_text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
MARKERS = "osD^vPX*"
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)))
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo")
MOST_LINES = len(COLOURS)
MOST_BARS = 24


@dataclass(frozen=True)
class Point:
    """A mean with its standard error (0 where it is not known)."""

    x: float
    y: float
    error: float = 0.0
    x_error: float = 0.0


Lines = Mapping[str, Sequence[Point]]
NOTHING = Point(0.0, float("nan"))


def png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _new(width: float, height: float, columns: int = 1) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # not pyplot: no window, no state

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for one in axes:
        one.grid(True, color="#dddddd", linewidth=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _plain(name: str) -> str:
    """A name that runs gave, without control characters and as no formula."""
    return visible(name).replace("$", r"\$")


def _style(place: int) -> dict[str, Any]:
    place %= MOST_LINES
    return {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": LINES[place], "markersize": 5}


def _draw(axes: Axes, lines: Lines, markers: bool = True) -> None:
    for place, (name, points) in enumerate(lines.items()):
        x, y, errors = ([getattr(point, what) for point in points] for what in ("x", "y", "error"))
        style = _style(place) if markers else {**_style(place), "marker": ""}
        if any(errors):
            axes.errorbar(x, y, errors, capsize=3, linewidth=1.5, label=_plain(name), **style)
        else:
            axes.plot(x, y, linewidth=1.5, label=_plain(name), **style)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    if names:
        fitting = int(figure.get_figwidth() * 15 / (max(map(len, names)) + 8))
        columns = max(1, min(4, len(names), fitting))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def accuracy(metric: str, by_epoch: Lines, by_time: Lines, target: float | None) -> Figure:
    """A metric over epochs and over time, one line a setting, and the target."""
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = _new(9, 4, 2)
    for axes, lines, label in ((left, by_epoch, "epoch"), (right, by_time, "time since the clock started (s)")):
        _draw(axes, lines)
        axes.set_xlabel(label)
        highest = max((point.y for points in lines.values() for point in points), default=0.0)
        axes.set_ylabel(_plain(f"{metric} (0 to 1)" if highest <= 1 else metric))
        if target is not None:
            axes.axhline(target, color="#555555", linewidth=1)
            axes.annotate(
                f"target {target:g}",
                (0.01, target),
                xytext=(0, 2),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                size=8,
                bbox={"color": "white", "pad": 0.5, "alpha": 0.8},
            )
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xlim(left=0)
    _legend(figure, left)
    return figure


def reached(steps: Lines, given_up: Lines) -> Figure:
    """The share of runs that has reached the target over time, a line of steps a setting; a cross where one of its
    runs was given up."""
    figure, (axes,) = _new(8, 4)
    end = max(point.x for lines in (steps, given_up) for points in lines.values() for point in points)
    for place, (name, points) in enumerate(steps.items()):
        style = {**_style(place), "marker": ""}
        x, y = [0.0, *(point.x for point in points), 1.05 * end], [0.0, *(point.y for point in points)]
        axes.step(x, [*y, y[-1]], where="post", linewidth=1.5, label=_plain(name), **style)
        crosses = given_up.get(name, [])
        look = {"marker": "x", "linestyle": "", "color": style["color"]}
        axes.plot([point.x for point in crosses], [point.y for point in crosses], **look)
    axes.set_xlabel("time since the clock started (s; x: a run was given up)")
    axes.set_ylabel("share that has reached the target (0 to 1)")
    axes.set_xlim(left=0)
    axes.set_ylim(-0.02, 1.05)
    _legend(figure, axes)
    return figure


def scaling(seconds: Lines, speed_ups: Lines, unit: str) -> Figure:
    """Time and speed-up over the number of devices, with what ideal scaling would be; both axes logarithmic."""
    from matplotlib.ticker import LogLocator

    figure, (left, right) = _new(9, 4, 2)
    counts = sorted({point.x for points in seconds.values() for point in points})
    _draw(left, seconds)
    for points in seconds.values():
        first = points[0]
        left.plot(
            counts, [first.y * first.x / count for count in counts], color="#888888", linewidth=0.8, linestyle=":"
        )
    _draw(right, speed_ups)
    right.plot(counts, [count / counts[0] for count in counts], color="#888888", linewidth=0.8, linestyle=":")
    for axes, label in ((left, unit), (right, "speed-up (times the fewest devices)")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(counts, [f"{count:g}" for count in counts])
        axes.yaxis.set_major_locator(LogLocator(base=2, numticks=12))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("devices (number; dotted: ideal scaling)")
        axes.set_ylabel(label)
    _legend(figure, left)
    return figure


def bars(values: Mapping[str, Point], label: str) -> Figure:
    """One horizontal bar a setting, with its error."""
    shown = list(values.items())[:MOST_BARS]
    figure, (axes,) = _new(8, 1.3 + 0.32 * len(shown))
    _bars(axes, dict(shown), label)
    return figure


def _bars(axes: Axes, values: Mapping[str, Point], label: str) -> None:
    for place, (name, point) in enumerate(values.items()):
        error = point.error or None
        place = place if len(values) <= MOST_LINES else 0  # no look twice: many bars are told apart by their names
        look: dict[str, Any] = {"color": COLOURS[place], "hatch": HATCHES[place]}
        axes.barh(_plain(name), point.y, xerr=error, capsize=3, ecolor="black", edgecolor="white", height=0.7, **look)
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.tick_params(axis="y", labelsize=8)


def stacks(curves: Mapping[str, Mapping[str, Point]], label: str) -> Figure:
    """Run time over drivers, one curve a CUDA version."""
    figure, (axes,) = _new(7, 4)
    drivers = list(dict.fromkeys(driver for points in curves.values() for driver in points))
    places = {driver: place for place, driver in enumerate(sorted(drivers, key=_version))}
    moved = {
        name: sorted(
            (Point(places[driver] + 0.04 * (number - (len(curves) - 1) / 2), point.y, point.error)
             for driver, point in points.items()),
            key=lambda point: point.x,
        )
        for number, (name, points) in enumerate(curves.items())
    }  # fmt: skip
    _draw(axes, moved)
    axes.set_xticks(list(places.values()), list(map(_plain, places)))
    axes.set_xlim(-0.4, len(places) - 0.6)
    axes.set_xlabel("NVIDIA driver (version)")
    axes.set_ylabel(label)
    _legend(figure, axes)
    return figure


def _version(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in text.split(".")]


def utilisation(panels: Mapping[str, Lines]) -> Figure:
    """A panel for each of GPU, CPU, disk and network, over time, one line a setting."""
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    figure, axes = _new(3.1 * len(panels) + 0.5, 3.6, len(panels))
    for one, (label, lines) in zip(axes, panels.items(), strict=True):
        _draw(one, {name: lines.get(name, []) for name in names}, markers=False)  # one look in all panels
        one.axvline(0, color="#555555", linewidth=1)
        one.set_xlabel("time since the clock started (s)")
        one.set_ylabel(label)
        one.set_ylim(0, 105 if "%" in label else None)
    _legend(figure, axes[0])
    return figure


def mean_utilisation(panels: Mapping[str, Mapping[str, Point]]) -> Figure:
    """A panel for each of GPU, CPU, disk and network: the mean of each workload, with its error over settings."""
    names = list(dict.fromkeys(name for values in panels.values() for name in values))
    figure, axes = _new(3 * len(panels) + 1.5, 1.4 + 0.35 * len(names), len(panels))
    for place, (one, (label, values)) in enumerate(zip(axes, panels.items(), strict=True)):
        _bars(one, {name: values.get(name, NOTHING) for name in names}, label)  # a row is one workload in all panels
        if place:
            one.set_yticklabels([])
    return figure


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points (time, cost) that no other beats or equals in one and beats in the other, by time."""
    places = sorted(range(len(points)), key=lambda place: points[place])
    front: list[int] = []
    for place in places:
        if not front or points[place][1] < points[front[-1]][1]:
            front.append(place)
    return front


def cost(settings: Mapping[str, Point]) -> Figure:
    """Cost against time, a mark a setting, and the front of those that no other beats in both.

    Of many settings those on the front are named, then the soonest; the others are grey.
    """
    figure, (axes,) = _new(7, 4.5)
    names, points = list(settings), list(settings.values())
    front = pareto([(point.x, point.y) for point in points])
    order = dict.fromkeys([*front, *sorted(range(len(points)), key=lambda place: points[place].x)])
    named = sorted(list(order)[:MOST_LINES])
    for place in (place for place in range(len(points)) if place not in named):
        axes.plot(points[place].x, points[place].y, "o", color="#bbbbbb", markersize=4, zorder=1)
    for number, place in enumerate(named):
        point, style = points[place], _style(number) | {"linestyle": "", "markersize": 7}
        axes.errorbar(
            point.x, point.y, point.error or None, point.x_error or None, capsize=3, elinewidth=1,
            label=_plain(names[place]), **style,
        )  # fmt: skip
    for one, other in pairwise(points[place] for place in front):  # a step: nothing better is known between two
        axes.plot([one.x, other.x, other.x], [one.y, one.y, other.y], color="#888888", linewidth=1, zorder=0)
    if len(front) > 1:
        axes.plot([], [], color="#888888", linewidth=1, label="Pareto front")
    if len(named) < len(points):
        axes.plot([], [], "o", color="#bbbbbb", markersize=4, label=f"{len(points) - len(named)} other settings")
    axes.set_xlabel("time to accuracy (s)")
    axes.set_ylabel("cost to accuracy (USD)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _legend(figure, axes)
    return figure
