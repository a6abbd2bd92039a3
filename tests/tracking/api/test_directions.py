"""A script declares which way its metrics are better; where it does not, none of their values is a best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conf.schema import ConfigError
from tracking.analysis.results import FolderRuns
from tracking.api.options import TrialOptions, checked
from tracking.lightning import TimeTrial, time_trial
from tracking.record import documents, headline, run_folder

VALUES = [{"val_loss": 2.0, "power": 1.0}, {"val_loss": 1.0, "power": 3.0}, {"val_loss": 1.5, "power": 2.0}]


def trained(root: Path, **options: Any) -> Path:
    quiet = {"runs_dir": str(root), "offline": True, "device": "cpu", "system_metrics_interval_sec": 0}
    with time_trial(**quiet, **options) as trial:
        for epoch, metrics in enumerate(VALUES, 1):
            trial.step(4)
            trial.evaluate(metrics, epoch=epoch)
    (folder,) = root.glob("2*")
    return folder


@pytest.mark.slow
def test_a_declared_direction_is_in_every_file_that_readers_have(tmp_path: Path) -> None:
    declared = {"val_loss": "lower", "power": "higher"}
    folder = trained(tmp_path, metrics=declared)
    result = run_folder.read_result(folder)
    assert result is not None
    assert (result.metrics["eval/best_val_loss"], result.metrics["eval/best_power"]) == (1.0, 3.0)
    assert (result.metrics["eval/val_loss"], result.metrics["eval/power"]) == (1.5, 2.0)
    assert headline(result).startswith("val_loss 1 at best")
    (run,) = FolderRuns([tmp_path]).find([folder.name])
    assert result.directions == run.directions == run_folder.read_config(folder).directions() == declared


@pytest.mark.slow
def test_metrics_beside_that_of_the_target_have_a_best_value_too(tmp_path: Path) -> None:
    result = run_folder.read_result(trained(tmp_path, metrics={"power": "higher"}, target={"val_loss": "<=0.5"}))
    assert result is not None
    best = {key: value for key, value in result.metrics.items() if key.startswith("eval/best_")}
    assert list(best.items()) == [("eval/best_val_loss", 1.0), ("eval/best_power", 3.0)]


@pytest.mark.slow
def test_without_one_there_is_no_best(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    result = run_folder.read_result(folder)
    assert result is not None
    assert not [key for key in result.metrics if key.startswith("eval/best_")]
    assert headline(result).startswith("val_loss 1.5 at the end")
    content = documents.read_json(folder / run_folder.RESULT)
    del content["directions"]  # as in results of older versions
    documents.write_json(folder / run_folder.RESULT, content)
    assert run_folder.read_result(folder) == result


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metrics": ["val_loss"]}, "metrics=.*: not directions"),
        (
            {"metrics": {"val_loss": "min"}},
            "metrics={'val_loss': 'min'}: not a direction. Allowed: a metric's name, and lower or higher",
        ),
        ({"metrics": {"": "lower"}}, "Allowed: a metric's name"),
        (
            {"metrics": {"val_loss": "lower"}, "target": {"val_loss": 3.0}},
            "metrics={'val_loss': 'lower'}: the target 3 implies higher. Next: change one of the two",
        ),
    ],
)
def test_what_declares_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TimeTrial(**options)


def test_a_metric_is_declared_by_the_name_that_the_script_gives_it() -> None:
    options = checked(TrialOptions({"mAP@0.5": 0.4}, metrics={"FID@10k": "lower"}))
    assert options.metrics == {options.names["FID@10k"]: "lower"}
