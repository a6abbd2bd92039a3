"""Figures as data in, a figure out: what is on the axes, and whether settings can be told apart without colour."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.report import charts
from tracking.report.charts import Point

LINES = {f"setting {place}": [Point(1, 1 + place), Point(2, 2 + place, 0.1)] for place in range(8)}
BARS = {name: points[0] for name, points in LINES.items()}
DRAWN = {
    "accuracy": charts.accuracy("accuracy", LINES, LINES, 0.9),
    "scaling": charts.scaling(LINES, LINES, "time to accuracy (s)"),
    "bars": charts.bars(BARS, "throughput (samples/s)"),
    "stacks": charts.stacks({"CUDA 13.0": {"580.1": Point(0, 2), "90.2": Point(0, 3)}}, "time to accuracy (s)"),
    "utilisation": charts.utilisation({"GPU utilisation (%)": LINES, "disk (MB/s)": LINES}),
    "means": charts.mean_utilisation({"GPU utilisation (%)": BARS, "disk (MB/s)": BARS}),
    "cost": charts.cost(BARS),
    "reached": charts.reached(
        {"gpus=1": [Point(2, 0.5), Point(3, 1.0)], "gpus=2": [Point(5, 0.0)]}, {"gpus=2": [Point(5, 0)]}
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_every_axis_says_what_it_is_and_the_figure_can_be_drawn(name: str) -> None:
    figure = DRAWN[name]
    assert charts.png(figure).startswith(b"\x89PNG")
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel() or [label.get_text() for label in axes.get_yticklabels()] or name == "means"


def test_lines_differ_in_colour_marker_and_style() -> None:
    lines = [
        line
        for line in DRAWN["accuracy"].axes[0].lines
        if len(line.get_xdata()) == 2 and line.get_marker() in "osD^vPX*"
    ]  # type: ignore[arg-type]
    looks = [(line.get_color(), line.get_marker()) for line in lines]
    assert len(looks) == 8
    for one, other in combinations(looks, 2):
        assert one[0] != other[0]
        assert one[1] != other[1]
    assert len(charts.LINES) == len(set(charts.LINES)) == len(set(charts.HATCHES)) == len(charts.COLOURS)


def test_a_setting_looks_the_same_in_panels_that_lack_another() -> None:
    some = {"second": [Point(0, 1), Point(1, 2)]}
    figure = charts.utilisation({"GPU (%)": {"first": [Point(0, 1)], **some}, "CPU (%)": {**some, "third": []}})
    looks = [next(line.get_color() for line in axes.lines if line.get_label() == "second") for axes in figure.axes]
    assert looks == [charts.COLOURS[1]] * 2
    bars = charts.mean_utilisation({"GPU (%)": {"first": Point(0, 1)}, "CPU (%)": {"second": Point(0, 2)}})
    widths = [[bar.get_width() for bar in axes.patches] for axes in bars.axes]  # type: ignore[attr-defined]
    assert [[math.isnan(width) for width in row] for row in widths] == [[False, True], [True, False]]


def test_drivers_are_in_the_order_of_their_versions() -> None:
    labels = [label.get_text() for label in DRAWN["stacks"].axes[0].get_xticklabels()]
    assert labels == ["90.2", "580.1"]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_nothing_beats_a_point_of_the_front_and_all_others_are_beaten_or_equalled(
    points: list[tuple[int, int]],
) -> None:
    front = {points[place] for place in charts.pareto([(float(x), float(y)) for x, y in points])}
    for point in points:
        beaten = any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
        assert (point in front) is not beaten


def test_of_many_settings_those_that_nothing_beats_are_named_and_no_look_stands_for_two() -> None:
    settings = {f"setting {place}": Point(1.0 + place, 30.0 - place) for place in range(3)}  # the front
    settings |= {f"other {place}": Point(10.0 + place, 100.0 + place) for place in range(20)}
    (axes,) = charts.cost(settings).axes
    named = {str(label): handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    assert {"setting 0", "setting 1", "setting 2", "other 0", "15 other settings", "Pareto front"} <= named.keys()
    assert len(named) == len(charts.COLOURS) + 2
    (axes,) = charts.bars(settings, "throughput (samples/s)").axes
    assert len({bar.get_facecolor() for bar in axes.patches}) == 1  # type: ignore[attr-defined]
