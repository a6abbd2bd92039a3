"""A training that is evaluated within its epochs, from the command to the check of its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.commands import TINY, Launched, events, launch
from tracking.__main__ import main
from tracking.record import run_folder

pytestmark = pytest.mark.slow
QUICK = (*TINY, "gpus=0", "tracking.system_metrics_interval_sec=0", "tracking.offline=true", "max_epochs=2")
STEPS = 18  # an epoch of 1,150 samples in batches of 64, over all processes


@pytest.fixture(scope="module", params=[1, 2])
def evaluated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """On one process and on two: every 320 samples, which is 5 steps, with the best weights kept."""
    processes = (f"cpu_processes={request.param}", f"batch_size={64 // request.param}")
    asked = ("eval_every_samples=310", "stop_at_target=false", "save_model=best", "log_every_n_steps=4")
    return launch(tmp_path_factory.mktemp("evaluated"), *QUICK, *processes, *asked)


def test_it_is_evaluated_within_epochs_and_at_the_end(evaluated: Launched) -> None:
    assert evaluated.code == 0, evaluated.output
    values = [event.values for event in events(evaluated.folder, "eval_accuracy")]
    assert [row["step"] for row in values] == [5, 10, 15, 20, 25, 30, 35, 36]
    assert [row["epoch_num"] for row in values] == pytest.approx([row["step"] / STEPS for row in values], abs=1e-6)
    assert [row["samples_count"] for row in values] == [320, 640, 960, 1278, 1598, 1918, 2238, 2300]
    assert "evaluates every 5 steps, which is 320 samples (requested: 310)" in evaluated.output
    metrics = evaluated.result["metrics"]
    assert metrics["epochs/to_accuracy"] == pytest.approx(5 * metrics["evaluations/to_accuracy"] / STEPS, abs=1e-6)


def test_the_best_weights_are_those_of_an_evaluation_within_an_epoch(evaluated: Launched) -> None:
    content = torch.load(evaluated.folder / run_folder.MODEL, weights_only=True)["evaluation"]
    values = [event.values for event in events(evaluated.folder, "eval_accuracy")]
    best = max(values, key=lambda row: row["metrics"]["accuracy"])
    assert (content["step"], content["epoch_num"]) == (best["step"], best["epoch_num"])


def test_its_report_is_checked(evaluated: Launched, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--from-folders", "--runs-dir", str(evaluated.cwd / "runs")]
    report = ["report", evaluated.folder.name, "--check", "--out", str(evaluated.cwd / "report"), *where]
    assert main(report) == 0, capsys.readouterr()
    figures: list[dict[str, Any]] = json.loads((evaluated.cwd / "report" / "report.json").read_text())["figures"]
    assert {"epochs", "evaluations", "s between evaluations"} <= {figure["figure"] for figure in figures}


def test_what_is_longer_than_the_training_is_refused_before_it(tmp_path: Path) -> None:
    """As tests/tracking/measure/training/test_evaluation_plan.py has it of all that is refused."""
    refused = launch(tmp_path, *QUICK, "eval_every_samples=999999")
    assert refused.code == 2, refused.output
    words = " ".join(refused.output.replace("│", " ").split())
    assert "is longer than the training" in words
    assert "the training has 36 steps (2 epochs of 18)" in words
    assert not events(refused.folder, "run_start")
