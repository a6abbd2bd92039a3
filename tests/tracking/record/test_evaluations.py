"""Which evaluation was the best."""

from __future__ import annotations

import math

import pytest

from tracking.record import evaluations

ROWS = [{"accuracy": 0.5, "loss": 0.3}, {"accuracy": 0.9, "loss": math.nan}, {"accuracy": 0.7, "loss": 0.2}]


DECLARED = {"accuracy": "higher", "loss": "lower"}


def test_the_best_is_in_the_declared_direction_and_what_is_no_number_is_never_best() -> None:
    assert evaluations.best(ROWS, ["accuracy", "loss"], DECLARED) == {"eval/best_accuracy": 0.9, "eval/best_loss": 0.2}
    assert evaluations.best(ROWS, ["loss"], {"loss": "higher"}) == {"eval/best_loss": 0.3}
    assert evaluations.best(ROWS, ["recall"], {"recall": "higher"}) == {}
    assert evaluations.best([], ["accuracy"], DECLARED) == {}


def test_without_a_direction_there_is_no_best() -> None:
    assert evaluations.best(ROWS, ["accuracy", "loss"], {"accuracy": "higher"}) == {"eval/best_accuracy": 0.9}
    assert {evaluations.score(row, {}, "loss") for row in ROWS} == {-math.inf}


@pytest.mark.parametrize(
    ("targets", "metric", "best"),
    [
        ({"accuracy": 0.6}, "accuracy", 1),
        ({}, "accuracy", 1),
        ({}, "loss", 2),
        ({"accuracy": 0.6, "loss": 0.0}, "accuracy", 2),  # the one whose loss is no number is out
        ({"accuracy": 0.9, "loss": -0.2}, "accuracy", 2),  # 0.2 are missing, in the first 0.4
    ],
)
def test_the_best_evaluation_is_the_one_that_comes_nearest_to_all_targets(
    targets: dict[str, float], metric: str, best: int
) -> None:
    scores = [evaluations.score(row, targets, metric, DECLARED) for row in ROWS]
    assert scores.index(max(scores)) == best
