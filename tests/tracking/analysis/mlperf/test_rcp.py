"""MLPerf's reference convergence points: epochs that are plausible, too few, between two points, and without any."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracking.analysis import mlperf


def logs(
    benchmark: str, batch: int, epochs: list[int], missed: int = 0, **said: Any
) -> list[tuple[str, str, dict[str, str]]]:
    made = []
    for seed, last in enumerate(epochs):
        all_said = {"submission_benchmark": benchmark, "seed": seed, "global_batch_size": batch, **said}
        lines = [{"key": key, "value": value, "time_ms": 1_700_000_000_000} for key, value in all_said.items()]
        lines.append({"key": "run_start", "value": None, "time_ms": 1_700_000_000_001 + seed})
        for epoch in (1, last):
            evaluated = {"key": "eval_accuracy", "value": 0.8, "time_ms": 1_700_000_001_000 + epoch}
            lines.append(evaluated | {"metadata": {"epoch_num": epoch}})
        status = {"status": "success" if seed < len(epochs) - missed else "aborted"}
        stop = {"key": "run_stop", "value": None, "time_ms": 1_700_000_100_000, "metadata": status}
        made.append((f"run{seed}", "".join(f":::MLLOG {json.dumps(line)}\n" for line in [*lines, stop]), {}))
    return made


@pytest.mark.parametrize(
    ("batch", "epochs", "words"),
    [
        (4096, [60] * 5, "convergence is plausible: 60 epochs (5 runs), reference "),
        (4096, [10] * 5, "implausibly few epochs: 10 epochs (5 runs), reference "),
        (5000, [60] * 5, ", interpolated, rules 4.0.0)"),
        (8, [60] * 5, "convergence is plausible"),
        (10_000_000, [60] * 5, "not checked: rules 4.0.0 have no reference for resnet at or around batch 10,000,000"),
    ],
    ids=["plausible", "too few", "between", "below", "above"],
)
def test_resnets_epochs_stand_beside_the_references(batch: int, epochs: list[int], words: str) -> None:
    (score,) = mlperf.scores(logs("resnet", batch, epochs))
    assert words in mlperf.convergence(score).verdict


def test_points_are_of_rounds_that_had_the_same_target() -> None:
    """SSD became another benchmark in v2.0, and the Transformer was gone before there were points."""
    (ssd,) = mlperf.scores(logs("ssd", 1024, [20] * 5))
    assert mlperf.convergence(ssd).ruleset == "1.1.0"
    (transformer,) = mlperf.scores(logs("transformer", 1024, [2] * 10))
    checked = mlperf.convergence(transformer)
    assert (checked.good, checked.verdict.startswith("convergence is not checked: MLPerf has no")) == (None, True)
    (maskrcnn,) = mlperf.scores(logs("maskrcnn", 96, [5] * 2))
    checked = mlperf.convergence(maskrcnn)
    assert (checked.good, checked.verdict) == (None, "convergence is not checked: 2 of 5 runs")


@pytest.mark.parametrize(
    ("benchmark", "said", "why"),
    [
        ("resnet", {"dataset": "shapes"}, "the runs used another dataset, shapes instead of imagenet"),
        ("resnet", {"target_accuracy": {"accuracy": 0.749}}, "accuracy 0.749 instead of 0.759"),
        ("ssd", {"target_accuracy": {"box_map": 0.212}}, "box_map 0.212 instead of 0.23"),
        ("dlrm", {}, "MLPerf has no reference convergence points for dlrm"),
    ],
)
def test_runs_of_another_task_are_not_held_against_the_points(benchmark: str, said: dict[str, Any], why: str) -> None:
    (score,) = mlperf.scores(logs(benchmark, 4096, [5] * 5, **said))
    checked = mlperf.convergence(score)
    assert (checked.good, why in checked.verdict) == (None, True), checked.verdict


def test_a_run_that_missed_the_target_counts_as_the_slowest() -> None:
    (score,) = mlperf.scores(logs("resnet", 3264, [34, 34, 35, 36, 40], missed=1, dataset="imagenet"))
    checked = mlperf.convergence(score)
    assert (checked.epochs, checked.good) == (35.0, True)
    (score,) = mlperf.scores(logs("resnet", 3264, [34, 34, 35, 36, 40], missed=2))
    assert "2 of 5 runs missed the target, at most 1 may" in mlperf.convergence(score).verdict


def test_below_the_smallest_batch_few_epochs_are_no_proof() -> None:
    (score,) = mlperf.scores(logs("resnet", 8, [5] * 5))
    checked = mlperf.convergence(score)
    assert checked.good is None
    assert "no reference at batch 8 or below: 5 epochs (5 runs), reference 35" in checked.verdict


@pytest.mark.parametrize(("epochs", "ruleset"), [(2000, "3.0.0"), (400_000, "4.0.0")])
def test_unet3d_is_held_against_points_in_the_same_unit(epochs: int, ruleset: str) -> None:
    (score,) = mlperf.scores(logs("unet3d", 32, [epochs] * 40))
    assert mlperf.convergence(score).ruleset == ruleset
