"""The pictures of a search: the best so far over its runs, the landscape of its settings, and its front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tracking.analysis.report.pictures import COLOURS, new_figure, plain, png
from tracking.analysis.search import DECIDE, EXPLORE, Axis, SearchTrial, by_second
from tracking.jobs.search.answer_words import LABELS, setting_text
from tracking.jobs.search.fronts import Point, front_of
from tracking.jobs.search.search_rules import GROUPS
from tracking.record import documents

PROGRESS, LANDSCAPE, FRONT = "search_progress.png", "search_landscape.png", "search_front.png"
MARKS = {"reached": "o", "stopped": "x", "missed": "v"}
SAID = {"reached": "reached the target", "stopped": "stopped: it could not be the best", "missed": "missed the target"}


def write(folder: Path, trials: Sequence[SearchTrial], axes: Sequence[Axis], objectives: Sequence[str]) -> None:
    """Write the runs by each objective, and the landscape of the first if two axes are numeric. Raises OSError."""
    known = [(number, trial, at) for number, trial in enumerate(trials, 1) if (at := _at(trial)) is not None]
    if not known:
        return
    figure, panels = new_figure(8, 4.2 * len(objectives), rows=len(objectives))
    progress(panels[0], known, objectives[0])
    if len(objectives) > 1:
        seconds = [(number, by_second(trial)) for number, trial, _ in known]
        progress(panels[1], [(*each, at) for each in seconds if (at := _at(each[1])) is not None], objectives[1])
    _save(folder / PROGRESS, figure)
    numbers = [axis for axis in axes if all(not isinstance(value, str | bool) for value in axis.choices)]
    numbers.sort(key=lambda axis: bool(axis.choices))
    if len(numbers) > 1:
        _save(folder / LANDSCAPE, landscape(known, numbers[-1], numbers[0], objectives[0]))


def write_front(folder: Path, points: Sequence[Point], objectives: Sequence[str]) -> None:
    """Write one objective against the other, if at least two settings have both. Raises OSError."""
    if len(points) > 1:
        _save(folder / FRONT, front_picture(points, objectives))


def front_picture(points: Sequence[Point], objectives: Sequence[str]) -> Any:
    """Each setting by two objectives; a line joins the settings on the front, with their names."""
    figure, (axes,) = new_figure(8, 4.8)
    for phase, label in ((EXPLORE, "explored alone"), (DECIDE, "decided")):
        of_phase = [point[1:] for point in points if point.trial.phase == phase]
        if of_phase:
            axes.plot(*zip(*of_phase, strict=True), "o", color=COLOURS[phase == DECIDE], label=label)
    chosen = front_of(points)
    axes.plot(*zip(*(point[1:] for point in chosen), strict=True), "-", color="#444444", linewidth=1, label="front")
    for trial, *at in chosen:
        words = plain(setting_text(trial.setting))
        axes.annotate(words, at, textcoords="offset points", xytext=(5, 5), fontsize=8)
    axes.set_xlabel(LABELS[objectives[0]])
    axes.set_ylabel(LABELS[objectives[1]])
    axes.legend(fontsize=8, frameon=False)
    return figure


def _save(path: Path, figure: Any) -> None:
    with documents.replacing(path) as file:
        file.write(png(figure))


def _at(trial: SearchTrial) -> float | None:
    return trial.value if trial.value is not None else trial.censored_at


def progress(axes: Any, known: Sequence[tuple[int, SearchTrial, float]], objective: str) -> None:
    """Draw each run's value over its number, and the best so far as steps; a line marks the first deciding run."""
    for state, mark in MARKS.items():
        points = [(number, at) for number, trial, at in known if trial.state == state]
        if points:
            axes.plot(*zip(*points, strict=True), mark, color=COLOURS[list(MARKS).index(state)], label=SAID[state])
    best = list(accumulate((at if trial.value is not None else float("inf") for _, trial, at in known), min))
    steps = [(number, value) for (number, _, _), value in zip(known, best, strict=True) if value < float("inf")]
    if steps:
        axes.step(*zip(*steps, strict=True), where="post", color="#444444", linewidth=1.5, label="best so far")
    deciding = next((number for number, trial, _ in known if trial.phase == "decide"), None)
    if deciding is not None:
        axes.axvline(deciding - 0.5, color="#888888", linewidth=1, linestyle="--", label="deciding begins")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("run")
    axes.set_ylabel(LABELS[objective])
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)


def landscape(known: Sequence[tuple[int, SearchTrial, float]], across: Axis, up: Axis, objective: str) -> Any:
    """Each setting on two axes, coloured by its value if it reached the target; grey: stopped or missed.

    There is a panel for each number of GPUs, or each value of another axis in GROUPS. All have one scale of colours.
    """
    key = next((key for key in GROUPS if key in known[0][1].setting and key not in (across.key, up.key)), None)
    parts: dict[Any, list[tuple[int, SearchTrial, float]]] = {}
    for each in known:
        parts.setdefault(each[1].setting[key] if key else "", []).append(each)
    reached = [at for _, trial, at in known if trial.state == "reached"]
    figure, panels = new_figure(max(7, 4 * len(parts)), 4.8, columns=len(parts))
    for panel, (group, part) in zip(panels, sorted(parts.items()), strict=True):
        drawn = _landscape(panel, part, across, up, reached)
        _scale(panel.xaxis, across, known)
        _scale(panel.yaxis, up, known)
        if key:
            panel.set_title(plain(f"{key}={group}"), fontsize=10)
    for axis in ("x", "y"):
        ends = [end for panel in panels for end in getattr(panel, f"get_{axis}lim")()]
        for panel in panels:
            panel.set(**{f"{axis}lim": (min(ends), max(ends))})
    if reached:
        figure.colorbar(drawn, ax=list(panels), label=LABELS[objective])
    marks = {label: mark for panel in panels for mark, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(marks.values(), marks, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _landscape(
    panel: Any, known: Sequence[tuple[int, SearchTrial, float]], across: Axis, up: Axis, reached: Sequence[float]
) -> Any:
    """Draw one panel, with colours scaled to `reached`, the values of all panels. Returns the scale of colours."""
    low, high = min(reached, default=0.0), max(reached, default=1.0)
    colours = panel.scatter([], [], c=[], cmap="viridis", vmin=low, vmax=high)
    for state, mark in MARKS.items():
        chosen = [(trial, at) for _, trial, at in known if trial.state == state]
        x, y = ([trial.setting[axis.key] for trial, _ in chosen] for axis in (across, up))
        if chosen and state == "reached":
            values = [at for _, at in chosen]
            panel.scatter(x, y, c=values, marker=mark, cmap="viridis", vmin=low, vmax=high, label=SAID[state])
        elif chosen:
            panel.scatter(x, y, color="#999999", marker=mark, label=SAID[state])
    return colours


def _scale(drawn: Any, axis: Axis, known: Sequence[tuple[int, SearchTrial, float]]) -> None:
    """Label one axis; it is logarithmic if its values differ a lot, and has a tick at each choice."""
    values = [float(trial.setting[axis.key]) for _, trial, _ in known]
    if min(values) > 0 and max(values) >= 4 * min(values):
        drawn.axes.set(**{f"{drawn.axis_name}scale": "log"})
    if axis.choices:
        drawn.set_ticks(list(axis.choices), [f"{choice:g}" for choice in axis.choices])
        drawn.set_ticks([], minor=True)
    else:
        drawn.set_major_formatter("{x:g}")
        drawn.set_minor_formatter("{x:g}")
    drawn.set_tick_params(which="minor", labelsize=7)
    drawn.set_label_text(plain(axis.key))
