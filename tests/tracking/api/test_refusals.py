"""What a script asks of the callback and cannot have: said at once, and never a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conf.schema import ConfigError
from tests.tracking.api import own_script
from tracking.analysis.results import FolderRuns
from tracking.api.script_process import THIS_PROCESS
from tracking.lightning import TimeTrial

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Lightning's warnings to users


def trial(runs_dir: Path, **options: Any) -> TimeTrial:
    return TimeTrial(runs_dir=str(runs_dir), offline=True, system_metrics_interval_sec=0, **options)


def fit(*trials: TimeTrial) -> None:
    training = own_script.trainer(trials[0], max_epochs=1)
    training.callbacks += trials[1:]  # type: ignore[attr-defined]
    training.fit(own_script.Line(), *own_script.loaders())


def test_a_target_that_is_never_evaluated_is_told_of_and_is_no_miss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(trial(tmp_path, target={"val_accuracy": 0.9}))
    assert "target=val_accuracy: was not evaluated. Evaluated: train_loss, val_loss" in capsys.readouterr().out
    (folder,) = tmp_path.iterdir()
    (run,) = FolderRuns([tmp_path]).find([folder.name])
    assert run.uncounted == "no evaluation had the target's val_accuracy"
    fit(trial(tmp_path, target={"val_loss": "<=9"}))
    assert len(THIS_PROCESS.companions) <= 2  # those that have ended are no zombies


def test_two_callbacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two TimeTrials"):
        fit(trial(tmp_path), trial(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"runs_dir=.*file is not a folder\. Next: give a folder"):
        fit(trial(tmp_path / "file"))
