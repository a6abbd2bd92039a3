"""The pictures of a search: the best so far over its runs, the landscape that it has seen, and time against cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from tracking.analysis.report.pictures import COLOURS, new_figure, plain, png
from tracking.analysis.search import DECIDE, EXPLORE, Axis, Key, SearchTrial
from tracking.jobs.search.answer_words import LABELS, setting_text
from tracking.record import documents

PROGRESS, LANDSCAPE, FRONT = "search_progress.png", "search_landscape.png", "search_front.png"
Point = tuple[SearchTrial, float, float]  # a run, or one of a setting's: its time and its cost to the target
MARKS = {"reached": "o", "stopped": "x", "missed": "v"}
SAID = {"reached": "reached the target", "stopped": "stopped: it could not be the best", "missed": "missed the target"}


def write(folder: Path, trials: Sequence[SearchTrial], axes: Sequence[Axis], objective: str) -> None:
    """Write both; the landscape needs two axes of numbers. Raises OSError."""
    known = [(number, trial, at) for number, trial in enumerate(trials, 1) if (at := _at(trial)) is not None]
    if not known:
        return
    _save(folder / PROGRESS, progress(known, objective))
    numbers = [axis for axis in axes if all(not isinstance(value, str | bool) for value in axis.choices)]
    numbers.sort(key=lambda axis: bool(axis.choices))
    if len(numbers) > 1:
        _save(folder / LANDSCAPE, landscape(known, numbers[-1], numbers[0], objective))


def write_front(folder: Path, runs: Sequence[Point], trials: Sequence[SearchTrial]) -> None:
    """Write time against cost, where runs of two settings or more have both. Raises OSError.

    A setting of which a deciding run missed the target has no place in it.
    """
    missed = {trial.key for trial in trials if trial.phase == DECIDE and trial.state == "missed"}
    points = means([run for run in runs if run[0].key not in missed])
    if len(points) > 1:
        _save(folder / FRONT, front_picture(points))


def means(runs: Sequence[Point]) -> list[Point]:
    """The means of each setting, of its deciding runs where it has any: those of exploring hold a search's luck."""
    settings: dict[Key, list[Point]] = {}
    for run in runs:
        settings.setdefault(run[0].key, []).append(run)
    points = []
    for own in settings.values():
        counted = [run for run in own if run[0].phase == DECIDE] or own
        points.append((counted[0][0], fmean(run[1] for run in counted), fmean(run[2] for run in counted)))
    return points


def front(points: Sequence[Point]) -> list[Point]:
    """The settings than which no other one is both quicker and cheaper, the quickest first.

    Where any was decided, only those count: a single run that explored may have been lucky.
    """
    decided = [point for point in points if point[0].phase == DECIDE] or points
    ordered, chosen = sorted(decided, key=lambda point: point[1:]), list[Point]()
    for point in ordered:
        if not chosen or point[2] < chosen[-1][2]:
            chosen.append(point)
    return chosen


def front_picture(points: Sequence[Point]) -> Any:
    """Each setting's time and cost to the target; a line joins those that are on the front, which are named."""
    figure, (axes,) = new_figure(8, 4.8)
    for phase, label in ((EXPLORE, "explored alone"), (DECIDE, "decided")):
        own = [point[1:] for point in points if point[0].phase == phase]
        if own:
            axes.plot(*zip(*own, strict=True), "o", color=COLOURS[phase == DECIDE], label=label)
    chosen = front(points)
    axes.plot(*zip(*(point[1:] for point in chosen), strict=True), "-", color="#444444", linewidth=1, label="front")
    for trial, seconds, usd in chosen:
        words = plain(setting_text(trial.setting))
        axes.annotate(words, (seconds, usd), textcoords="offset points", xytext=(5, 5), fontsize=8)
    axes.set_xlabel(LABELS["time"])
    axes.set_ylabel(LABELS["cost"])
    axes.legend(fontsize=8, frameon=False)
    return figure


def _save(path: Path, figure: Any) -> None:
    with documents.replacing(path) as file:
        file.write(png(figure))


def _at(trial: SearchTrial) -> float | None:
    return trial.value if trial.value is not None else trial.censored_at


def progress(known: Sequence[tuple[int, SearchTrial, float]], objective: str) -> Any:
    """Each run's value over its number, and the best so far as steps; deciding runs are behind a line."""
    figure, (axes,) = new_figure(8, 4.2)
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
    axes.set_xlabel("run")
    axes.set_ylabel(LABELS[objective])
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)
    return figure


def landscape(known: Sequence[tuple[int, SearchTrial, float]], across: Axis, up: Axis, objective: str) -> Any:
    """Each setting on two axes, coloured by its value where it reached the target; grey: stopped or missed."""
    figure, (axes,) = new_figure(7, 4.8)
    for state, mark in MARKS.items():
        there = [(trial, at) for _, trial, at in known if trial.state == state]
        x, y = ([trial.setting[axis.key] for trial, _ in there] for axis in (across, up))
        if there and state == "reached":
            drawn = axes.scatter(x, y, c=[at for _, at in there], marker=mark, cmap="viridis", label=SAID[state])
            figure.colorbar(drawn, label=LABELS[objective])
        elif there:
            axes.scatter(x, y, color="#999999", marker=mark, label=SAID[state])
    _scale(axes.xaxis, across, known)
    _scale(axes.yaxis, up, known)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _scale(drawn: Any, axis: Axis, known: Sequence[tuple[int, SearchTrial, float]]) -> None:
    """Label one axis: logarithmic where its values differ a lot, with a tick at each choice."""
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
