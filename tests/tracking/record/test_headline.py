"""What a finished run came to, in a line."""

from __future__ import annotations

from tracking.record import Result, headline


def result(metrics: dict[str, float]) -> Result:
    return Result("finished", {}, evaluations=[{"epoch_num": 1, "metrics": metrics}])


def test_without_a_target_it_is_of_the_evaluation_and_not_of_the_training() -> None:
    assert headline(result({"train_loss": 0.25, "val_loss": 0.5})) == "val_loss 0.5 at best"
    assert headline(result({"train_loss": 0.25})) == "train_loss 0.25 at best"
