"""MLPerf's reference convergence points: epochs that are plausible, too few, between two points, and without any."""

from __future__ import annotations

import json

import pytest

from tracking.analysis import mlperf


def logs(benchmark: str, batch: int, epochs: list[int]) -> list[tuple[str, str, dict[str, str]]]:
    made = []
    for seed, last in enumerate(epochs):
        said = {"submission_benchmark": benchmark, "seed": seed, "global_batch_size": batch}
        lines = [{"key": key, "value": value, "time_ms": 1_700_000_000_000} for key, value in said.items()]
        lines.append({"key": "run_start", "value": None, "time_ms": 1_700_000_000_001 + seed})
        for epoch in (1, last):
            evaluated = {"key": "eval_accuracy", "value": 0.8, "time_ms": 1_700_000_001_000 + epoch}
            lines.append(evaluated | {"metadata": {"epoch_num": epoch}})
        stop = {"key": "run_stop", "value": None, "time_ms": 1_700_000_100_000, "metadata": {"status": "success"}}
        made.append((f"run{seed}", "".join(f":::MLLOG {json.dumps(line)}\n" for line in [*lines, stop]), {}))
    return made


@pytest.mark.parametrize(
    ("batch", "epochs", "words"),
    [
        (4096, [60] * 5, "convergence is plausible: 60 epochs (5 runs), reference "),
        (4096, [10] * 5, "too few epochs to be true: 10 epochs (5 runs), reference "),
        (5000, [60] * 5, ", interpolated, rules 4.0.0)"),
        (8, [60] * 5, "convergence is plausible"),
        (10_000_000, [60] * 5, "not checked: rules 4.0.0 have no reference of resnet at batch 10,000,000 or around it"),
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
    assert (checked.good, checked.verdict.startswith("convergence is not checked: there are no")) == (None, True)
    (maskrcnn,) = mlperf.scores(logs("maskrcnn", 96, [5] * 2))
    assert mlperf.convergence(maskrcnn).good is False
