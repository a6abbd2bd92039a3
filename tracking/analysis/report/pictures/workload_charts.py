"""All workloads in one picture, over devices: time to accuracy, speed-up and efficiency; and utilisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tracking.analysis.compare import Estimate, Setting, Task, estimate, estimates, speed_up
from tracking.analysis.report.pictures.drawing import MOST_WORKLOADS, Point, add_legend, draw_lines, new_figure
from tracking.analysis.report.pictures.plot import Panel, Plot, drawn
from tracking.analysis.report.pictures.plot_data import TIME, as_point, bounds_of
from tracking.base import quantities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNT, SECONDS, SPEED_UP, EFFICIENCY = "devices (number)", "time to accuracy (s)", "speed-up", "efficiency"
USABLE = 0.8  # an efficiency that is often asked for
TICKS = {1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 8 * 3600: "8 h", 86400: "1 d", 604800: "7 d"}
BUSY = (
    quantities.UTILIZATION_GPU_UTILIZATION_PERCENTAGE, quantities.UTILIZATION_RUN_CPU_PERCENTAGE,
    quantities.UTILIZATION_GPU_NVLINK_TRANSMIT_MEGABYTES_PER_SEC,
    quantities.UTILIZATION_GPU_PCIE_TRANSMIT_MEGABYTES_PER_SEC,
)  # fmt: skip
Lines = dict[str, list[Point]]


def times_of_all(tasks: Sequence[Task]) -> Plot | None:
    """The picture of several workloads; None for a single one, for a single number of devices, or without times."""
    if len(tasks) < 2:
        return None
    times = _lines(tasks, lambda task, setting: estimate(setting.measured(TIME)))
    if len(times) < 2 or len({point.x for points in times.values() for point in points}) < 2:
        return None
    ratios = [_lines(tasks, lambda task, setting, side=side: _ratio(task, setting, side)) for side in (0, 1)]
    ups, shares = ({name: lines[name] for name in times if len(lines.get(name, ())) > 1} for lines in ratios)
    panels = [
        Panel(COUNT, SECONDS, times, TIME),
        Panel(COUNT, SPEED_UP, ups, TIME),
        Panel(COUNT, EFFICIENCY, shares, TIME),
    ]
    panels = [panel for panel in panels if panel.lines]
    figure, axes = new_figure(5 * len(panels), 4.6, len(panels))
    for panel, place in zip(panels, axes, strict=True):
        DRAWN[panel.y](place, panel.lines)
        place.set_xlabel(COUNT)
    add_legend(figure, axes[0])
    caption = "time to accuracy, speed-up and efficiency of all workloads over devices; error bars are standard errors"
    caption += bounds_of(points for panel in panels for points in panel.lines.values())
    return drawn("workloads", caption[0].upper() + caption[1:], figure, panels)


def busy_over_devices(tasks: Sequence[Task]) -> Plot | None:
    """Utilisation and traffic between GPUs, over numbers of devices; None for a single number."""
    panels = []
    for key in BUSY:
        lines = _lines(tasks, lambda task, setting, key=key: estimate(setting.measured(key)))
        lines = {name: points for name, points in lines.items() if len({point.x for point in points}) > 1}
        if any(point.y for points in lines.values() for point in points):
            panels.append(Panel(COUNT, quantities.quantity(key).heading, lines, key))
    if not panels:
        return None
    figure, axes = new_figure(4.5 * len(panels), 4.2, len(panels))
    for panel, place in zip(panels, axes, strict=True):
        _over_counts(place, panel.lines)
        place.set_ylim(0, 105 if "%" in panel.y else None)
        place.yaxis.set_major_formatter("{x:,g}")
        place.set_ylabel(panel.y)
        place.set_xlabel(COUNT)
    add_legend(figure, axes[0])
    caption = (
        "Utilisation and traffic between GPUs over devices, means over the training; error bars are standard errors"
    )
    return drawn("busy", caption, figure, panels)


def _lines(tasks: Sequence[Task], value: Callable[..., Estimate | None]) -> Lines:
    """A line over devices for each workload and combination of its other axes; at most MOST_WORKLOADS lines."""
    lines: Lines = {}
    for task in tasks:
        for setting in task.settings:
            mean = value(task, setting)
            if mean is not None and setting.devices:
                lines.setdefault(name_of(task, setting), []).append(as_point(setting.devices, mean))
    ordered = {name: sorted(points, key=lambda point: point.x) for name, points in lines.items()}
    return dict(list(ordered.items())[:MOST_WORKLOADS])


def name_of(task: Task, setting: Setting) -> str:
    rest = estimates.line_name(setting, task.settings)
    return f"{task.title}: {rest}" if rest else task.title


def _ratio(task: Task, setting: Setting, side: int) -> Estimate | None:
    base = estimates.base_of(setting, task.settings)
    ratios = speed_up(setting, base, TIME) if base else None
    return ratios[side] if ratios else None


def _over_counts(axes: Axes, lines: Mapping[str, Sequence[Point]]) -> list[float]:
    draw_lines(axes, lines)
    counts = sorted({point.x for points in lines.values() for point in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [f"{count:g}" for count in counts])
    return counts


def _draw_times(axes: Axes, lines: Mapping[str, Sequence[Point]]) -> None:
    """Times from seconds to days, on one logarithmic axis."""
    _over_counts(axes, lines)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = {place: words for place, words in TICKS.items() if low <= place <= high}
    if len(ticks) > 1:
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
    axes.set_ylabel("time to accuracy")


def _draw_speed_ups(axes: Axes, lines: Mapping[str, Sequence[Point]]) -> None:
    """Speed-ups and ideal scaling, with an inset that leaves out the largest number of devices.

    Ideal scaling is left out if the lines begin at different numbers of devices: each would have its own.
    """
    counts = _over_counts(axes, lines)
    axes.set_xscale("linear")
    axes.set_xticks(counts, [f"{count:g}" for count in counts])
    same_base = len({points[0].x for points in lines.values()}) == 1
    ideal = [count / counts[0] for count in counts] if same_base else []
    axes.plot(counts[: len(ideal)], ideal, color="#888888", linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("speed-up (dotted: ideal)" if ideal else "speed-up, each line over its fewest devices")
    if len(counts) > 2:
        top = max(point.y for points in lines.values() for point in points if point.x <= counts[-2])
        axes.set_ylim(top=1.7 * max([*ideal, *(point.y for points in lines.values() for point in points)]))
        inset = axes.inset_axes((0.08, 0.62, 0.4, 0.36))
        draw_lines(inset, lines)
        inset.plot(counts[: len(ideal)], ideal, color="#888888", linewidth=0.8, linestyle=":")
        inset.set_xlim(counts[0] * 0.9, counts[-2] * 1.1)
        inset.set_ylim(0.8, 1.15 * max([top, *ideal[:-1]]))
        inset.set_xticks(counts[:-1], [f"{count:g}" for count in counts[:-1]])
        inset.tick_params(labelsize=7)


def _draw_efficiencies(axes: Axes, lines: Mapping[str, Sequence[Point]]) -> None:
    _over_counts(axes, lines)
    axes.axhline(USABLE, color="#888888", linewidth=1, linestyle="--")
    axes.annotate("80 %", (1, USABLE), xycoords=("axes fraction", "data"), ha="right", va="bottom", size=8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(EFFICIENCY)


DRAWN = {SECONDS: _draw_times, SPEED_UP: _draw_speed_ups, EFFICIENCY: _draw_efficiencies}
