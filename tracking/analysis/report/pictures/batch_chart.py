"""Times over batch sizes, with the batches that did not fit into the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracking.analysis.compare import Setting, Task, estimate
from tracking.analysis.report.pictures.drawing import (
    MOST_LINES,
    Lines,
    Point,
    add_legend,
    draw_lines,
    new_figure,
    style_of,
)
from tracking.analysis.report.pictures.plot import Panel, Plot, drawn
from tracking.analysis.report.pictures.plot_data import TIME, as_point, bounds_of
from tracking.base import quantities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = ("batch_size", "global_batch_size")  # axes whose values are batch sizes
TIMES = {"time of an epoch (s)": quantities.TIME_EPOCH_SEC, "time to accuracy (s)": TIME}
FULL = "runs out of memory (share)"


def batches(task: Task) -> Plot | None:
    """The picture of a workload on several batch sizes; None without them, and without a time."""
    axis = next((axis for axis in AXES if any(axis in setting.labels for setting in task.settings)), "")
    with_batch = [setting for setting in task.settings if setting.labels.get(axis, "").isdecimal()]
    if len({setting.labels[axis] for setting in with_batch}) < 2:
        return None
    panels = [Panel(axis, words, _lines(task, with_batch, axis, key), key) for words, key in TIMES.items()]
    panels = [panel for panel in panels if panel.lines]
    if not panels:
        return None
    full: dict[str, list[Point]] = {}
    for setting in with_batch:
        if setting.num_out_of_memory:
            point = Point(float(setting.labels[axis]), setting.num_out_of_memory / setting.total)
            full.setdefault(_name(task, setting, axis), []).append(point)
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    figure, places = new_figure(4.8 * len(panels), 4.2, len(panels))
    for panel, axes in zip(panels, places, strict=True):
        _draw(axes, panel, {name: panel.lines.get(name, []) for name in names}, full)
    add_legend(figure, places[0])
    caption = "time of an epoch and time to accuracy over batch sizes; error bars are standard errors"
    caption += "; x: runs of this batch size were out of memory" if full else ""
    caption += bounds_of(points for panel in panels for points in panel.lines.values())
    return drawn("batches", caption, figure, [*panels, *([Panel(axis, FULL, full)] if full else [])])


def _lines(task: Task, settings: Sequence[Setting], axis: str, key: str) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for setting in settings:
        if mean := estimate(setting.measured(key)):
            lines.setdefault(_name(task, setting, axis), []).append(as_point(float(setting.labels[axis]), mean))
    ordered = {name: sorted(points, key=lambda point: point.x) for name, points in lines.items()}
    return dict(list(ordered.items())[:MOST_LINES])


def _name(task: Task, setting: Setting, axis: str) -> str:
    """The labels of a setting without its batch size."""
    return " ".join(f"{key}={value}" for key, value in setting.labels.items() if key != axis) or task.title


def _draw(axes: Axes, panel: Panel, lines: Lines, full: Mapping[str, Sequence[Point]]) -> None:
    draw_lines(axes, lines)
    for name, points in full.items():
        style = style_of([*lines].index(name)) if name in lines else {"color": "#555555"}
        for point in points:
            axes.plot(point.x, 0.96, "x", color=style["color"], markersize=8, transform=axes.get_xaxis_transform())
    counts = sorted({point.x for points in (*lines.values(), *full.values()) for point in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [f"{count:g}" for count in counts])
    axes.set_ylim(bottom=0)
    low, high = axes.get_ylim()
    axes.set_ylim(low, 1.12 * high)  # room for the crosses
    axes.set_xlabel(f"{panel.x} (x: out of memory)" if full else panel.x)
    axes.set_ylabel(panel.y)
