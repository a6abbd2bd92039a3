"""A report and its audit name a best where a direction is declared, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import studied
from tests.support.few_runs import repeated, written
from tracking.analysis.audit.audit import audit
from tracking.analysis.report.report import Report

LOSSES = {1: 0.9, 2: 0.5}  # by GPUs


def report_on(root: Path, metrics: dict[str, Any], **options: Any) -> Report:
    """Two settings of two runs each. The one with two GPUs ends with the smaller loss."""
    runs = [
        run | {"losses": (2.0, 1.0, loss + number / 100)}
        for gpus, loss in LOSSES.items()
        for number, run in enumerate(repeated(config={"gpus": gpus, "metrics": metrics}, steps=(0.1, 0.1)))
    ]
    return written(root, runs, metric="eval/loss", **options)


@pytest.mark.parametrize(("better", "leader"), [("lower", "2 GPUs are"), ("higher", "1 GPU is")])
def test_the_best_is_in_the_declared_direction(tmp_path: Path, better: str, leader: str) -> None:
    made = report_on(tmp_path, {"accuracy": [0.0, 1.0], "loss": better})
    assert f"{leader} best: " in made.answer
    assert audit(made.plain(), [tmp_path]).differences == []
    wrong = made.plain()
    for pair in wrong["comparisons"]:
        pair["better"], pair["worse"] = pair["worse"], pair["better"]
    assert audit(wrong, [tmp_path]).differences


def test_without_a_direction_no_setting_is_the_best_and_the_report_says_what_to_declare(tmp_path: Path) -> None:
    made = report_on(tmp_path, {"accuracy": [0.0, 1.0]})
    assert made.answer == (
        "No setting is the best by eval/loss: whether a lower or a higher loss is better is not declared."
    )
    [advice] = [warning for warning in made.warnings if warning.startswith("eval/loss: ")]
    assert "metrics={'loss': 'lower'} of TimeTrial" in advice
    assert (made.comparisons, made.verdicts) == ([], [])
    assert not any(table.kind == "pairs" for table in made.tables)
    assert audit(made.plain(), [tmp_path]).differences == []


def test_several_workloads_without_a_direction_get_the_advice_once(tmp_path: Path) -> None:
    runs = [
        run | {"losses": (2.0, 1.0, 0.5)}
        for model in ("vgg", "resnet50")
        for gpus in (1, 2)
        for run in repeated(config={"model": model, "gpus": gpus, "targets": {}}, steps=(0.1, 0.11))
    ]
    made = written(tmp_path, runs, metric="eval/loss")
    assert made.answer.count("no setting is the best by eval/loss") == 2
    assert " ".join([made.answer, *made.warnings]).count("Next: declare it") == 1
    assert audit(made.plain(), [tmp_path]).differences == []


def test_of_a_metric_that_no_way_is_better_of_there_is_no_best(tmp_path: Path) -> None:
    runs = [run for gpus in (1, 2) for run in repeated(config={"gpus": gpus}, steps=(0.1, 0.11))]
    made = written(tmp_path, runs, metric="world_size")
    assert "No setting is the best by world_size: neither a lower nor a higher world_size is better" in made.answer
    assert made.comparisons == []
    assert audit(made.plain(), [tmp_path]).differences == []


def test_runs_that_contradict_each_other_say_nothing(tmp_path: Path) -> None:
    runs = [
        run | {"losses": (2.0, 1.0, LOSSES[gpus])}
        for gpus, better in ((1, "lower"), (2, "higher"))
        for run in repeated(config={"gpus": gpus, "metrics": {"accuracy": [0, 1], "loss": better}}, steps=(0.1, 0.11))
    ]
    made = written(tmp_path, runs, metric="eval/loss")
    assert "whether a lower or a higher loss is better is not declared" in made.answer
    assert audit(made.plain(), [tmp_path]).differences == []


@pytest.mark.parametrize("declared", [True, False])
def test_a_column_names_a_best_where_its_direction_is_known(tmp_path: Path, declared: bool) -> None:
    """Runs of older versions have a best value that a name's ending decided."""
    metrics = {"fid": "lower" if declared else [0.0, 9.0]}
    steps = repeated(config={"metrics": metrics, "targets": {}}, steps=(0.1, 0.11), accuracies=(3.0, 2.0, 2.5))
    sweep = studied.make_sweep(tmp_path / "old", "old", "sqlite:///none.db", 2)
    for run in steps:
        folder = studied.make_run(sweep, studied.config(**run.pop("config")), "sqlite:///none.db", **run)
        if not declared:
            studied.Writer(folder / "journal.jsonl", studied.START_MS).add(
                "metrics", 30.0, values={"eval/best_fid": 3.0}
            )
    from tracking.analysis.report import report
    from tracking.analysis.results.folder_runs import FolderRuns

    store = FolderRuns([tmp_path])
    made = report.make(store, ["old"], store.find(["old"]))
    shown = [table for table in made.tables if table.kind == "metrics"]
    assert [table.column("best fid") + table.column("last fid") for table in shown] == (
        [["2.000 ± 0.000", "2.500 ± 0.000"]] if declared else []
    )
    assert audit(made.plain(), [tmp_path]).differences == []
