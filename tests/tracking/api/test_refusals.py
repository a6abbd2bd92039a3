"""What a script asks of the callback and cannot have: said at once, and never a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conf.schema import ConfigError
from tests.tracking.api import own_script
from tracking.analysis.results import FolderRuns
from tracking.api.options import TrialOptions, checked
from tracking.api.script_process import THIS_PROCESS
from tracking.lightning import TimeTrial, time_trial

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


@pytest.mark.parametrize("value", [torch.ones(2), len, b"x"])
def test_a_param_that_is_no_value_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"params=\{'width': \.\.\.\}: has the type .* Allowed: one number, a text"):
        checked(TrialOptions({}, params={"width": value}))


def test_a_param_may_be_a_number_of_any_kind_a_text_or_a_list() -> None:
    given = {
        "lr": torch.tensor(0.5), "depth": torch.tensor([3]), "beta": np.float64(0.25), "width": np.int64(8),
        "dims": [64, 64], "path": Path("x"), "name": "sgd", "nothing": None, "nesterov": True,
    }  # fmt: skip
    params = checked(TrialOptions({}, params=given)).params
    assert params == {
        "lr": 0.5, "depth": 3, "beta": 0.25, "width": 8, "dims": "[64, 64]", "path": "x", "name": "sgd",
        "nothing": None, "nesterov": True,
    }  # fmt: skip
    assert {type(value) for value in params.values()} == {float, int, str, bool, type(None)}


def test_a_run_that_cannot_be_begun_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("by a fault of ours")

    monkeypatch.setattr("tracking.api.script_run.fingerprint.record", fail)
    with pytest.raises(ZeroDivisionError), time_trial(runs_dir=str(tmp_path), offline=True, device="cpu"):
        raise AssertionError("the training began")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"log_every_n_steps": "50"}, "log_every_n_steps='50': must be a whole number, 1 or more"),
        ({"log_every_n_steps": True}, "log_every_n_steps=True: must be a whole number, 1 or more"),
        ({"price_per_hour": True}, "price_per_hour=True: must be a number"),
        ({"log_every_n_steps": 2.5}, "log_every_n_steps=2.5: must be a whole number"),
        ({"price_per_hour": float("nan")}, "price_per_hour=nan: must be a number, 0 or more"),
        ({"price_per_hour": "3"}, "price_per_hour='3': must be a number"),
        ({"system_metrics_interval_sec": float("inf")}, "system_metrics_interval_sec=inf: must be a number"),
        ({"dataset": None}, "dataset=None: must be a text"),
        ({"offline": "no"}, "offline='no': must be True or False. Next: give offline=True or offline=False"),
        ({"offline": None}, "offline=None: must be True or False"),
        ({"stop_at_target": "False"}, "stop_at_target='False': must be True or False. Next: give stop_at_target=True"),
        ({"params": 3}, r"params=3: not params. Allowed: a dict such as \{'lr': 0.1\}"),
    ],
)
def test_an_option_of_a_wrong_type_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked(TrialOptions({}, **options))


@pytest.mark.parametrize("samples", [8, "len", [8]])
def test_what_cannot_count_a_batch_is_named(tmp_path: Path, samples: Any) -> None:
    with pytest.raises(ConfigError, match=r"samples=.* Allowed: a function of a batch, or None\. Next: give one, such"):
        trial(tmp_path, samples=samples)
    trial(tmp_path, samples=len)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "gpu"}, "device='gpu': .* Next: give a device such as 'cpu' or 'cuda:0'"),
        ({"batch_size": "64"}, "batch_size='64': must be a whole number, 1 or more"),
        ({"precision": 16}, "precision=16: must be a text"),
    ],
)
def test_an_argument_of_a_loop_of_a_wrong_type_is_named(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with (
        pytest.raises(ConfigError, match=words),
        time_trial(**{"runs_dir": str(tmp_path), "offline": True, "device": "cpu"} | options),
    ):
        raise AssertionError("the training began")
    assert not list(tmp_path.iterdir())
