"""Runs under the roofline of their GPU: a panel for each kind of GPU, a point for each setting, a dot for each run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.analysis.compare import Setting, Task
from tracking.analysis.report.pictures.drawing import (
    MOST_LINES,
    MOST_WORKLOADS,
    Point,
    add_legend,
    new_figure,
    plain,
    png,
    style_of,
)
from tracking.analysis.report.pictures.plot import Panel
from tracking.analysis.results import FolderRuns, Run, Runs
from tracking.analysis.statistics import mean_and_standard_error
from tracking.base.number_text import counted, verb
from tracking.measure.bottleneck import Ceilings, roofline
from tracking.record import documents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CEILINGS = "ceilings.json"  # tracking.measure.bottleneck leaves it in the run's folder.
PICTURE = "roofline.png"
NAME = "roofline"  # of a report's plot
INTENSITY, RATE = "model FLOPs for a byte of the GPU's memory", "model TFLOP/s of a device"
PRECISIONS = {"bf16": "-", "fp16": "--", "tf32": "-.", "fp32": ":"}


@dataclass
class Roofline:
    """A kind of GPU: its ceilings, and by setting the points of the mean and of the runs."""

    ceilings: Ceilings
    means: dict[str, Point] = field(default_factory=dict)
    runs: dict[str, list[Point]] = field(default_factory=dict)
    workloads: dict[str, str] = field(default_factory=dict)  # of settings; empty for a single workload


def rooflines(store: Runs, tasks: Sequence[Task]) -> dict[str, Roofline]:
    """The rooflines by GPU; a setting on several kinds of GPU has a point on each."""
    panels: dict[str, Roofline] = {}
    for task in tasks:
        for setting in task.settings:
            name = f"{task.title}: {setting.name}" if len(tasks) > 1 else setting.name
            for gpu, runs in _placed(setting).items():
                ceilings = next(_ceilings(store, runs), None)
                if ceilings is None:
                    continue
                panel = panels.setdefault(gpu, Roofline(ceilings))
                places = [Point(run.metrics[roofline.INTENSITY], run.metrics[roofline.RATE] / 1e12) for run in runs]
                (x, x_error), (y, error) = (
                    mean_and_standard_error([getattr(place, axis) for place in places]) for axis in "xy"
                )
                panel.means[name] = Point(x, y, error or 0.0, x_error or 0.0)
                panel.runs[name] = places
                panel.workloads |= {name: task.title} if len(tasks) > 1 else {}
    return panels


def absent(tasks: Sequence[Task]) -> list[str]:
    """How many runs on GPUs have no point, and why; empty if each has one."""
    runs = [run for task in tasks for setting in task.settings for run in _on_gpus(setting)]
    why = Counter(words for run in runs if (words := roofline.reason_absent(run.metrics)))
    if not why:
        return []
    reasons = "; ".join(f"{words} ({number})" for words, number in why.most_common())
    have = verb("have", why.total())
    return [f"{why.total()} of {counted(len(runs), 'run')} on GPUs {have} no point under a roofline: {reasons}"]


def _on_gpus(setting: Setting) -> list[Run]:
    return [run for run in setting.trained if run.tags.get("env.gpu", "none") != "none"]


def _placed(setting: Setting) -> dict[str, list[Run]]:
    """The runs that have a place under a roofline, by GPU."""
    by_gpu: dict[str, list[Run]] = {}
    for run in _on_gpus(setting):
        if roofline.INTENSITY in run.metrics:
            by_gpu.setdefault(run.tags["env.gpu"], []).append(run)
    return by_gpu


def write_of_run(folder: Path) -> None:
    """Write the picture of one run into its folder, if it has a place under a roofline. Raises OSError."""
    store = FolderRuns([folder])
    (run,) = store.find([str(folder)])
    ceilings = next(_ceilings(store, [run]), None)
    if roofline.INTENSITY not in run.metrics or ceilings is None:
        return
    point = Point(run.metrics[roofline.INTENSITY], run.metrics[roofline.RATE] / 1e12)
    panel = Roofline(ceilings, {run.name: point}, {run.name: [point]})
    with documents.replacing(folder / PICTURE) as file:
        file.write(png(draw({run.tags.get("env.gpu", ""): panel})))


def data(gpu: str, roofline_of_gpu: Roofline) -> list[Panel]:
    """The panels of a kind of GPU: the means of settings, and their runs."""
    means = {name: [point] for name, point in roofline_of_gpu.means.items()}
    return [
        Panel(INTENSITY, RATE, means, title=gpu),
        Panel(INTENSITY, RATE, roofline_of_gpu.runs, title=f"{gpu}: runs"),
    ]


def draw(panels: Mapping[str, Roofline]) -> Figure:
    figure, places = new_figure(7.5 * len(panels), 5, len(panels))
    for axes, (gpu, panel) in zip(places, panels.items(), strict=True):
        _draw_ceilings(axes, panel)
        labels = {name: panel.workloads.get(name, name) for name in panel.means}
        shown = list(dict.fromkeys(labels.values()))[: MOST_WORKLOADS if panel.workloads else MOST_LINES]
        for name, point in panel.means.items():
            if labels[name] in shown:
                _draw_point(axes, point, panel.runs[name], labels[name], shown.index(labels[name]))
        _scale(axes)
        axes.set_title(plain(gpu), size=10)
        axes.set_xlabel(INTENSITY)
        axes.set_ylabel(RATE)
        add_legend(figure, axes)
    return figure


def _draw_point(axes: Axes, mean: Point, runs: Sequence[Point], label: str, place: int) -> None:
    """A setting's mean and runs; one legend entry for all settings of the same label."""
    style = style_of(place) | {"linestyle": ""}
    named = plain(label) not in axes.get_legend_handles_labels()[1]
    axes.plot([run.x for run in runs], [run.y for run in runs], ".", color=style["color"], alpha=0.4)
    axes.errorbar(
        mean.x, mean.y, mean.error or None, mean.x_error or None, capsize=3, label=plain(label) if named else None,
        **style,
    )  # fmt: skip


def _draw_ceilings(axes: Axes, panel: Roofline) -> None:
    bandwidth = (panel.ceilings.rate("copy") or 0.0) / 1e12
    points = [point for points in panel.runs.values() for point in points]
    left = min(point.x for point in points) / 4
    peaks = {name: (panel.ceilings.rate(f"matmul/{name}") or 0.0) / 1e12 for name in PRECISIONS}
    right = 4 * max([point.x for point in points] + [peak / bandwidth for peak in peaks.values() if bandwidth])
    for name, look in PRECISIONS.items():
        if not peaks[name] or not bandwidth:
            continue
        ridge = max(left, peaks[name] / bandwidth)
        axes.plot(
            [left, ridge, right], [left * bandwidth, peaks[name], peaks[name]], look, color="#888888", linewidth=1
        )
        # bf16 and fp16 are almost equally high, so their labels stand on opposite sides of their lines.
        side = "top" if name == "fp16" else "bottom"
        axes.annotate(f"{name} {peaks[name]:,.0f}", (right, peaks[name]), ha="right", va=side, size=8)
    axes.annotate(f"copy {bandwidth:.2f} TB/s", (left, left * bandwidth), ha="left", va="bottom", size=8)


def _scale(axes: Axes) -> None:
    """Make the axes logarithmic; if y spans little, it also shows numbers between the powers of ten."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}" if high < 30 * low else "")
    axes.xaxis.set_major_formatter("{x:g}")


def _ceilings(store: Runs, runs: Sequence[Run]) -> Iterator[Ceilings]:
    for run in runs:
        try:
            content = json.loads(store.text(run, CEILINGS))
            yield Ceilings(**content)
        except (OSError, ValueError, TypeError):
            continue
