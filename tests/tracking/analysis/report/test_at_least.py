"""A factor over a setting with runs that missed the target is a lower bound, in all words and tables."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.few_runs import repeated, written
from tracking.analysis.audit import audit, audit_folder
from tracking.analysis.report import page
from tracking.analysis.report.report import Report
from tracking.analysis.results import Table

STEPS = tuple(0.05 + place / 1000 for place in range(6))  # seconds


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Report]:
    return functools.partial(written, tmp_path / "runs")


def runs_of(key: str, quick: Any, slow: Any, missed: int = 2) -> list[dict[str, Any]]:
    """Six quick runs reach the target. Of six slow runs the last `missed` do not."""
    options = [{"config": {key: each}} if key == "gpus" else {"tags": {key: each}} for each in (quick, slow)]
    late = repeated(steps=[6 * step for step in STEPS], **options[1])
    for run in late[6 - missed :]:
        run["accuracies"] = (0.1, 0.2, 0.3)
    return repeated(steps=STEPS, **options[0]) + late


def table(made: Report, kind: str) -> Table:
    [only] = [each for each in made.tables if each.kind == kind]
    return only


def test_a_factor_over_misses_is_at_least_that_in_the_table_the_words_and_the_json(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    made = make(runs_of("gpus", 1, 2))
    [pair] = made.plain()["comparisons"]
    said = r"gpus=1 is better by a factor of at least (\S+)"
    [factor] = re.fullmatch(said, pair["so"]).groups()  # type: ignore[union-attr]
    assert pair["factor_bound"] == made.plain()["best"][0]["factor_bound"] == "≥"
    assert table(made, "pairs").text()[0][3] == f"≥ {factor}"
    assert "≥: at least" in table(made, "pairs").note
    assert f"at least {factor} times as fast as 2 GPUs" in made.answer
    page.write(made, tmp_path / "report")
    for name in ("report.md", "report.html"):
        assert f"by a factor of at least {factor}" in (tmp_path / "report" / name).read_text()
    assert audit_folder(tmp_path / "report", [tmp_path / "runs"]).differences == []


def test_pictures_say_in_the_words_and_the_json_which_means_are_bounds(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    runs = runs_of("gpus", 1, 2)
    for run in runs:
        run["config"] |= {"price": 3.6}
    made = make(runs)
    assert "That has the lowest mean cost to the target as well: " in made.answer  # The other one's is at least more.
    pictures = {plot.name: plot for plot in made.plots}
    assert "Hollow: runs did not reach the target" in pictures["1-settings"].caption
    cost, scaling = (pictures[name].plain() for name in ("1-cost", "1-scaling"))
    assert "Hollow: runs did not reach the target, so the true mean is at least what is drawn" in cost["caption"]
    assert "at least (≥) or at most (≤) what is drawn" in scaling["caption"]
    known, missed = cost["panels"][0]["lines"]
    assert not {"at_least", "x_at_least"} & known.keys()
    assert missed["at_least"] == missed["x_at_least"] == [True]
    times, speed_ups = (panel["lines"][0] for panel in scaling["panels"])
    assert times["at_least"] == speed_ups["at_most"] == [False, True]
    assert "at_least" not in speed_ups
    page.write(made, tmp_path / "report")
    assert audit_folder(tmp_path / "report", [tmp_path / "runs"]).differences == []
    path = tmp_path / "report" / "report-1-cost.json"
    path.write_text(path.read_text().replace("x_at_least", "at_most"))
    assert audit_folder(tmp_path / "report", [tmp_path / "runs"]).differences


@pytest.mark.parametrize("accuracies", [(0.1, 0.2, 0.3), (0.5, 0.8, 0.95)])
def test_no_setting_has_the_lowest_mean_cost_where_it_alone_has_one_or_where_it_is_a_tie(
    make: Callable[..., Report], tmp_path: Path, accuracies: tuple[float, ...]
) -> None:
    sides = [repeated(config={"gpus": gpus, "price": 3.6}, steps=(0.05, 0.051)) for gpus in (1, 2)]
    for run in sides[1]:
        run["accuracies"] = accuracies
    for run in sides[0]:
        run["accuracies"] = (0.5, 0.8, 0.95)
    made = make(sides[0] + sides[1])
    assert "lowest mean cost" not in made.answer
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path / "runs"]).differences == []


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("better", "sign", "means", "words"),
    [
        ("lower", 1, ["1.5100 ± 0.0058", "≥ 1.5367 ± 0.0033"], "at least"),
        ("higher", -1, ["1.4900 ± 0.0058", "≤ 1.4633 ± 0.0033"], "at most"),
    ],
    ids=["a loss", "a score"],
)
def test_a_run_whose_value_became_nan_counts_against_its_setting(
    make: Callable[..., Report], tmp_path: Path, better: str, sign: int, means: list[str], words: str, lost: float
) -> None:
    runs = [run for gpus in (1, 2) for run in repeated(config={"gpus": gpus}, steps=(0.05, 0.051, 0.052))]
    for place, run in enumerate(runs):
        run["config"]["metrics"] = {"accuracy": [0.0, 1.0], "loss": better}
        run["losses"] = (2.0, 1.9, 1.5 + sign * place / 100 if place < 5 else lost)
    made = make(runs, metric="eval/loss")
    ranked = table(made, "ranking")
    assert [row[2] for row in ranked.text()] == means
    assert f"{means[1][0]}: {words}, since it became NaN in a run" in ranked.note
    [pair] = made.plain()["comparisons"]
    assert (pair["better"], pair["factor_bound"], pair["reaches_more_often"]) == ({"gpus": "1"}, "≥", None)
    [caption] = [plot.caption for plot in made.plots if plot.name == "1-settings"]
    assert f"it became NaN in a run, so the true mean is {words} what is drawn" in caption
    page.write(made, tmp_path / "report")
    assert audit_folder(tmp_path / "report", [tmp_path / "runs"]).differences == []


@pytest.mark.parametrize("metric", ["eval/accuracy", "eval/best_accuracy"])
def test_a_run_whose_accuracy_became_nan_counts_against_its_setting(
    make: Callable[..., Report], tmp_path: Path, metric: str
) -> None:
    """The best value of a run stays if there was one before."""
    runs = [run for gpus in (1, 2) for run in repeated(config={"gpus": gpus}, steps=(0.05, 0.051, 0.052))]
    for place, run in enumerate(runs):
        run["config"]["metrics"] = {"accuracy": "higher"}
        run["accuracies"] = (0.5, 0.6, 0.8 - place / 100)
    runs[-1]["accuracies"] = (math.nan,) * 3
    runs[-2]["accuracies"] = (0.5, 0.7, math.nan)
    made = make(runs, metric=metric, with_missed=True)
    known = {"eval/accuracy": "≤ 0.7700 ± 0.0000", "eval/best_accuracy": "≤ 0.723 ± 0.023"}
    assert [row[2] for row in table(made, "ranking").text()] == ["0.7900 ± 0.0058", known[metric]]
    assert "≤: at most, since it became NaN in a run" in table(made, "metrics").note
    page.write(made, tmp_path / "report")
    assert audit_folder(tmp_path / "report", [tmp_path / "runs"]).differences == []


def test_without_misses_a_factor_is_exact(make: Callable[..., Report], tmp_path: Path) -> None:
    made = make(runs_of("gpus", 1, 2, missed=0))
    [pair] = made.plain()["comparisons"]
    assert re.fullmatch(r"gpus=1 is better by a factor of \d\S+", pair["so"])
    assert pair["factor_bound"] == ""
    assert "≥" not in table(made, "pairs").text()[0][3] + table(made, "pairs").note
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path / "runs"]).differences == []


def test_so_it_is_of_stacks(make: Callable[..., Report], tmp_path: Path) -> None:
    made = make(runs_of("env.driver", "590.2", "580.1"), by=["driver"])
    stacks = table(made, "stacks")
    assert re.search(r"ahead of the next, driver=580.1, by a factor of at least [\d.]+ \(", stacks.note)
    assert re.fullmatch(r"≥ [\d.]+ %", str(stacks.rows[2][1]))
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path / "runs"]).differences == []


def test_a_tie_over_misses_is_at_least_as_fast(make: Callable[..., Report], tmp_path: Path) -> None:
    """One of two runs has missed by the time of the others, so the factor is 1 or more."""
    late = repeated(config={"gpus": 2}, steps=(0.05, 0.05))
    late[1]["accuracies"] = (0.1, 0.2, 0.3)
    made = make(repeated(config={"gpus": 1}, steps=(0.05, 0.05)) + late)
    assert ", at least as fast as 2 GPUs" in made.answer
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path / "runs"]).differences == []


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Runs, and the report on them as JSON."""
    root = tmp_path_factory.mktemp("shown")
    return root, json.dumps(written(root / "runs", runs_of("gpus", 1, 2)).plain())


@pytest.mark.parametrize("place", ["bound of a pair", "bound of the best", "words", "≥ ", "at least "])
def test_a_bound_that_is_shown_as_an_exact_factor_is_found(shown: tuple[Path, str], place: str) -> None:
    document = json.loads(shown[1])
    [row] = [row for each in document["tables"] if each["kind"] == "pairs" for row in each["rows"]]
    if place.startswith("bound"):
        document["comparisons" if "pair" in place else "best"][0]["factor_bound"] = ""
    elif place == "words":
        document["comparisons"][0]["so"] = document["comparisons"][0]["so"].replace("at least ", "")
    else:
        row[:] = [cell.replace(place, "") for cell in row]
    assert audit(document, [shown[0] / "runs"]).differences


def test_a_bound_below_1_is_no_factor(make: Callable[..., Report], tmp_path: Path) -> None:
    """Runs that gave up early say nothing of how long their setting takes, nor of what it costs."""
    late = repeated(config={"gpus": 2, "price": 3.6}, steps=STEPS)
    for run in late:
        run["accuracies"] = (0.1,)
    made = make(repeated(config={"gpus": 1, "price": 3.6}, steps=[6 * step for step in STEPS]) + late)
    assert "as fast as" not in made.answer
    assert "lowest mean cost" not in made.answer
    [pair] = made.plain()["comparisons"]
    assert (pair["factor"], pair["factor_bound"]) == (None, "")
    assert table(made, "pairs").text()[0][3] == ""
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path / "runs"]).differences == []


def test_how_far_apart_settings_are_is_said_of_known_means_alone(make: Callable[..., Report], tmp_path: Path) -> None:
    """The two runs of four that reached the target are no mean of their setting."""
    known = ((32, 0.1), (64, 0.11))
    runs = [run for size, step in known for run in repeated(config={"batch_size": size}, steps=(step, step))]
    late = repeated(config={"batch_size": 128}, steps=(0.01,) * 4)
    for run in late[2:]:
        run["accuracies"] = (0.1, 0.2, 0.3)
    made = make(runs + late, by=["batch_size"])
    gaps = table(made, "gaps")
    assert gaps.text()[0][2:5] == ["2 of 3", "batch_size=32", "batch_size=64"]
    assert "runs that did not reach the target are left out" in gaps.note
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path / "runs"]).differences == []


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_how_far_apart_settings_are_leaves_out_what_is_no_number(
    make: Callable[..., Report], tmp_path: Path, lost: float
) -> None:
    runs = [run for size in (32, 64, 128) for run in repeated(config={"batch_size": size}, steps=(0.1, 0.1))]
    for run, loss in zip(runs, (1.0, 1.0, 1.5, 1.5, 1.5, lost), strict=True):
        run["config"]["metrics"] = {"accuracy": [0.0, 1.0], "loss": "lower"}
        run["losses"] = (2.0, 1.9, loss)
    made = make(runs, by=["batch_size"], metric="eval/loss")
    assert table(made, "gaps").text()[0][5:] == ["50.0 %", "50.0 %"]
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path / "runs"]).differences == []
