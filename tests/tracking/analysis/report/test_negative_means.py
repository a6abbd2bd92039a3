"""A metric whose means are 0 or negative, such as a log-likelihood, has no score over a base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.few_runs import repeated, written
from tracking.analysis.audit import audit
from tracking.analysis.report import report
from tracking.analysis.report.report import Report

NONE = "none: a ratio needs means above 0"


def report_on(root: Path, by_gpus: dict[int, float]) -> Report:
    """The report over one GPU of settings that end with these values. Higher is better."""
    metrics = {"accuracy": [0.0, 1.0], "loss": "higher"}
    runs = [
        run | {"losses": (value - 2, value - 1, value + number / 100)}
        for gpus, value in by_gpus.items()
        for number, run in enumerate(repeated(config={"gpus": gpus, "metrics": metrics}, steps=(0.1, 0.1)))
    ]
    made = written(root, runs, metric="eval/loss")
    report.add_asked(made, [], {"gpus": "1"})
    return made


def scores(made: Report) -> list[object]:
    [table] = [table for table in made.tables if table.kind == "over"]
    return table.column("score")


@pytest.mark.parametrize(
    ("by_gpus", "expected"),
    [
        ({1: -50.0, 2: -100.0}, [NONE, NONE]),  # -100 / -50 would be twice as good
        ({1: 50.0, 2: -100.0, 4: 100.0}, ["1.000", NONE, "1.99990 ± 0.00022"]),
        ({1: -0.005, 2: 100.0}, [NONE, NONE]),  # the mean of one GPU is 0
    ],
)
def test_a_mean_that_is_not_above_0_has_no_score_and_the_table_says_why(
    tmp_path: Path, by_gpus: dict[int, float], expected: list[str]
) -> None:
    made = report_on(tmp_path, by_gpus)
    assert scores(made) == expected
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []


def test_a_ratio_of_negative_means_is_found(tmp_path: Path) -> None:
    document = json.loads(json.dumps(report_on(tmp_path, {1: -50.0, 2: -100.0}).plain()))
    [table] = [table for table in document["tables"] if table["kind"] == "over"]
    table["rows"][1][-1] = "2.00000 ± 0.00028"
    [words] = audit(document, [tmp_path]).differences
    assert NONE in words


def test_nor_is_there_a_gain_of_the_same_devices_in_more_nodes(tmp_path: Path) -> None:
    metrics = {"accuracy": [0.0, 1.0], "loss": "higher"}
    runs = [
        run | {"losses": (-9.0, -8.0, -5.0 * nodes)}
        for gpus, nodes in ((4, 1), (2, 2))
        for run in repeated(config={"gpus": gpus, "nodes": nodes, "metrics": metrics}, steps=(0.1, 0.1))
    ]
    made = written(tmp_path, runs, metric="eval/loss")
    [table] = [table for table in made.tables if table.kind == "shapes"]
    assert table.column("gain on 2 nodes") == [NONE]
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []
