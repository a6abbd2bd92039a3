"""Speed-ups are over the fewest devices of the same kind, and no two settings share a place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.few_runs import repeated, written
from tracking.analysis.audit import audit
from tracking.analysis.report.report import Report

ON_CPU = {"env.gpu": "none", "env.gpu_count": "0"}
CPU_AND_GPUS: list[tuple[dict[str, Any], float]] = [
    ({"config": {"gpus": 0}, "tags": ON_CPU}, 2.0), ({"config": {"gpus": 1}}, 0.1), ({"config": {"gpus": 2}}, 0.055),
]  # fmt: skip
SHAPES: list[tuple[dict[str, Any], float]] = [
    ({"config": {"gpus": gpus, "nodes": nodes}}, sec)
    for gpus, nodes, sec in ((1, 1, 0.1), (4, 1, 0.03), (2, 2, 0.06), (4, 2, 0.02))
]


def make(folder: Path, settings: list[tuple[dict[str, Any], float]], by: list[str]) -> Report:
    runs = [run for of, sec in settings for run in repeated(steps=[sec, sec + 0.001], **of)]
    return written(folder, runs, by=by)


def rows(made: Report, kind: str) -> list[list[str]]:
    return [row for each in made.tables if each.kind == kind for row in each.text()]


@pytest.fixture
def of_cpu(tmp_path: Path) -> Report:
    return make(tmp_path, CPU_AND_GPUS, ["gpus"])


@pytest.fixture
def of_shapes(tmp_path: Path) -> Report:
    return make(tmp_path, SHAPES, ["gpus", "nodes"])


def test_the_cpu_is_not_the_base_of_gpus(of_cpu: Report, tmp_path: Path) -> None:
    [(_, setting, alone, two)] = rows(of_cpu, "speed-ups")
    assert (setting, alone) == ("", "1.000")
    assert two.startswith("1.38")
    assert audit(json.loads(json.dumps(of_cpu.plain())), [tmp_path]).differences == []


def test_jobs_of_one_gpu_are_not_on_the_cpu(of_cpu: Report) -> None:
    [(_, setting, _, alone, *_, first, up_to)] = rows(of_cpu, "jobs")
    assert (setting, alone, first, up_to) == ("gpus=2", "3.912 s", "jobs at once", "1")


def test_shapes_with_as_many_devices_have_rows_and_lines_of_their_own(of_shapes: Report, tmp_path: Path) -> None:
    assert [(row[1], [bool(cell) for cell in row[2:]]) for row in rows(of_shapes, "speed-ups")] == [
        ("nodes=1", [True, True, False]), ("nodes=2", [False, True, True]),
    ]  # fmt: skip
    [plot] = [plot for plot in of_shapes.plots if plot.name == "1-scaling"]
    for panel in plot.panels:
        assert {name: [point.x for point in points] for name, points in panel.lines.items()} == {
            "nodes=1": [1.0, 4.0], "nodes=2": [4.0, 8.0],
        }  # fmt: skip
    assert audit(json.loads(json.dumps(of_shapes.plain())), [tmp_path]).differences == []
