"""Figures as data in, a figure out: what is on the axes, and whether settings can be told apart without colour."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.analysis.report.pictures import charts, drawing, plot_data, roofline_chart, stack_chart, workload_charts
from tracking.analysis.report.pictures.drawing import Point
from tracking.analysis.report.pictures.plot import Panel
from tracking.measure.bottleneck import Ceilings

LINES = {f"setting {place}": [Point(1, 1 + place), Point(2, 2 + place, 0.1)] for place in range(8)}
BARS = {name: points[0] for name, points in LINES.items()}
TIME = "time since the clock started (s)"
DRAWN = {
    "accuracy": charts.accuracy([Panel(x, "accuracy", LINES, target=0.9) for x in ("epoch", TIME)]),
    "scaling": charts.scaling(LINES, LINES, "time to accuracy (s)"),
    "bars": charts.bars(BARS, "throughput (samples/s)"),
    "stacks": stack_chart.stacks(
        {
            "A100": {
                "CUDA 12.8": {"535.9": Point(0, 2, 0.1), "580.1": Point(0, 3)},
                "CUDA 13.0": {"580.1": Point(0, 4)},
            },
            "H100": {"CUDA 13.0": {"535.9": Point(0, 2), "580.1": Point(0, 1, at_least=True)}},
        },
        ["535.9", "535.104", "580.1"],
        "time to accuracy (s)",
    ),
    "utilisation": charts.utilisation({"GPU utilisation (%)": LINES, "disk (MB/s)": LINES}),
    "means": charts.mean_utilisation({"GPU utilisation (%)": BARS, "disk (MB/s)": BARS}),
    "cost": charts.front(BARS, "cost to accuracy (USD)"),
    "reached": charts.reached(
        {"gpus=1": [Point(2, 0.5), Point(3, 1.0)], "gpus=2": [Point(5, 0.0)]}, {"gpus=2": [Point(5, 0)]}
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_every_axis_says_what_it_is_and_the_figure_can_be_drawn(name: str) -> None:
    figure = DRAWN[name]
    assert drawing.png(figure).startswith(b"\x89PNG")
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
    for look, other in combinations(looks, 2):
        assert look[0] != other[0]
        assert look[1] != other[1]
    assert len(drawing.LINES) == len(set(drawing.LINES)) == len(set(drawing.HATCHES)) == len(drawing.COLOURS)


def test_epochs_and_evaluations_are_marked_in_every_panel_of_their_setting() -> None:
    some = {"first": [Point(0, 1), Point(9, 2)], "second": [Point(0, 1)]}
    figure = charts.utilisation({"GPU (%)": some, "disk (MB/s)": some}, {"first": [(3.0, 4.0), (7.0, 8.5)]})
    for axes in figure.axes:
        strokes = [line for line in axes.lines if line.get_marker() == "|" and len(line.get_xdata())]  # type: ignore[arg-type]
        assert [list(line.get_xdata()) for line in strokes] == [[3.0, 7.0]]  # type: ignore[arg-type]
        (bars,) = axes.collections
        assert [[x for x, _ in path.vertices.tolist()] for path in bars.get_paths()] == [[3.0, 4.0], [7.0, 8.5]]


def test_a_training_after_a_long_start_has_half_of_its_panel() -> None:
    (axes,) = charts.utilisation({"GPU (%)": {"first": [Point(-400, 1), Point(-1, 5), Point(40, 2)]}}).axes
    left, right = axes.get_xlim()
    assert (left, right > 40) == (-right, True)
    (axes,) = charts.utilisation({"GPU (%)": {"first": [Point(-400, 1), Point(-100, 5)]}}).axes
    assert axes.get_xlim()[0] <= -400


def test_a_link_that_nothing_went_over_has_no_panel_and_an_idle_gpu_has_one() -> None:
    assert plot_data.moved("NVLink (MB/s)", [0.0, 0.1])
    assert not plot_data.moved("NVLink (MB/s)", [0.0, 0.0])
    assert plot_data.moved("GPU utilisation (%)", [0.0])


def test_a_cross_is_explained_where_there_is_one() -> None:
    assert DRAWN["reached"].axes[0].get_xlabel() == "time since the clock started (s; x: a run was given up)"
    figure = charts.reached({"gpus=1": [Point(2, 1.0)]}, {"gpus=1": []})
    assert figure.axes[0].get_xlabel() == "time since the clock started (s)"


def test_an_evaluation_begins_with_the_end_of_its_epoch() -> None:
    spans = plot_data.evaluation_spans([1.0, 2.0, 3.0, 5.0, 6.0], [4.0, 6.5])
    assert spans == [(3.0, 4.0), (6.0, 6.5)]
    assert plot_data.evaluation_spans([], [4.0]) == [(4.0, 4.0)]


def test_a_setting_looks_the_same_in_panels_that_lack_another() -> None:
    some = {"second": [Point(0, 1), Point(1, 2)]}
    figure = charts.utilisation({"GPU (%)": {"first": [Point(0, 1)], **some}, "CPU (%)": {**some, "third": []}})
    looks = [next(line.get_color() for line in axes.lines if line.get_label() == "second") for axes in figure.axes]
    assert looks == [drawing.COLOURS[1]] * 2
    bars = charts.mean_utilisation({"GPU (%)": {"first": Point(0, 1)}, "CPU (%)": {"second": Point(0, 2)}})
    widths = [[bar.get_width() for bar in axes.patches] for axes in bars.axes]  # type: ignore[attr-defined]
    assert [[math.isnan(width) for width in row] for row in widths] == [[False, True], [True, False]]


@pytest.mark.parametrize(("bases", "dotted"), [((1, 1), 1), ((1, 2), 0)])
def test_the_ideal_is_drawn_where_all_lines_have_the_same_base(bases: tuple[int, int], dotted: int) -> None:
    _, (axes,) = drawing.new_figure(5, 4, 1)
    lines = {str(place): [Point(base, 1), Point(4, 2), Point(8, 3)] for place, base in enumerate(bases)}
    workload_charts.DRAWN[workload_charts.SPEED_UP](axes, lines)
    assert [line.get_linestyle() for line in axes.lines if len(line.get_xdata())].count(":") == dotted


def test_a_panel_a_gpu_has_every_driver_and_a_curve_breaks_off_where_one_is_missing() -> None:
    panels = DRAWN["stacks"].axes
    assert [axes.get_title() for axes in panels] == ["A100", "H100"]
    for axes in panels:
        assert [label.get_text() for label in axes.get_xticklabels()] == ["535.9", "535.104", "580.1"]
    older, newer = (line for line in panels[0].lines if line.get_marker() in ("o", "s") and len(line.get_xdata()) == 3)
    marks = panels[0].lines
    assert [math.isnan(y) for y in older.get_ydata()] == [False, True, False]
    assert [math.isnan(y) for y in newer.get_ydata()] == [True, True, False]
    hollow = [line for line in marks if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [round(x) for line in hollow for x in line.get_xdata()] == [1, 0, 1]
    looks = [next(line.get_color() for line in axes.lines if len(line.get_xdata()) == 3 and line.get_marker() == "s")
             for axes in panels]  # fmt: skip
    assert looks == [drawing.COLOURS[1]] * 2  # one look in all panels, also where the first curve is missing
    assert [text.get_text() for axes in panels for text in axes.texts] == ["≥"]
    names = [text.get_text() for text in DRAWN["stacks"].legends[0].texts]
    assert names == ["CUDA 12.8", "CUDA 13.0", "hollow, at the foot: missing"]


def test_every_workload_has_a_look_of_its_own_under_the_roofline() -> None:
    panel = roofline_chart.Roofline(Ceilings())
    for place, gpus in product(range(10), (1, 8)):
        name = f"model {place}: gpus={gpus}"
        panel.means[name], panel.runs[name] = Point(1 + place, gpus), [Point(1 + place, gpus)]
        panel.workloads[name] = f"model {place}"
    (axes,) = roofline_chart.draw({"H100": panel}).axes
    handles, names = axes.get_legend_handles_labels()
    assert names == [f"model {place}" for place in range(10)]
    looks = {(line.get_color(), line.get_marker(), line.get_markerfacecolor()) for line, *_ in handles}
    assert len(looks) == 10


def test_labels_of_many_drivers_do_not_overlap() -> None:
    drivers = [f"580.{branch}.04" for branch in range(100, 107)]
    figure = stack_chart.stacks({"H100": {"CUDA 13.0": dict.fromkeys(drivers, Point(0, 2))}}, drivers, "time (s)")
    drawing.png(figure)
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    height = boxes[0].height
    for left, right in pairwise(boxes):  # turned, so that a box is wider than what is written in it
        assert right.x1 - left.x1 > 0.3 * height


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_nothing_beats_a_point_of_the_front_and_all_others_are_beaten_or_equalled(
    points: list[tuple[int, int]],
) -> None:
    front = {points[place] for place in charts.pareto([(float(x), float(y)) for x, y in points])}
    for point in points:
        beaten = any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
        assert (point in front) is not beaten


def test_a_setting_with_misses_is_hollow_and_not_on_the_front() -> None:
    settings = {"a": Point(2, 2), "b": Point(3, 1), "missed": Point(1, 0.5, at_least=True, x_at_least=True)}
    (axes,) = charts.front(settings, "cost to accuracy (USD)").axes
    assert [text.get_text() for text in axes.texts] == ["≥"]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in hollow] == [(1, 0.5)]  # type: ignore[index]
    [steps] = [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 3]  # type: ignore[arg-type]
    assert steps == [2, 3, 3]


def test_a_bound_of_a_line_is_hollow_and_says_in_which_direction() -> None:
    lines = {"vgg": [Point(1, 1), Point(2, 1.5, at_most=True), Point(4, 3, at_least=True)]}
    _, (axes,) = drawing.new_figure(4, 4)
    drawing.draw_lines(axes, lines)
    assert [text.get_text() for text in axes.texts] == ["≤", "≥"]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata()[0] for line in hollow] == [2, 4]  # type: ignore[index]
    assert "at least (≥) or at most (≤) what is drawn" in plot_data.bounds_of(lines.values())
    assert plot_data.bounds_of(LINES.values()) == ""


def test_of_many_settings_those_that_nothing_beats_are_named_and_no_look_stands_for_two() -> None:
    settings = {f"setting {place}": Point(1.0 + place, 30.0 - place) for place in range(3)}  # the front
    settings |= {f"other {place}": Point(10.0 + place, 100.0 + place) for place in range(20)}
    (axes,) = charts.front(settings, "cost to accuracy (USD)").axes
    named = {str(label): handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    assert {"setting 0", "setting 1", "setting 2", "other 0", "15 other settings", "Pareto front"} <= named.keys()
    assert len(named) == len(drawing.COLOURS) + 2
    (axes,) = charts.bars(settings, "throughput (samples/s)").axes
    assert len({bar.get_facecolor() for bar in axes.patches}) == 1  # type: ignore[attr-defined]
