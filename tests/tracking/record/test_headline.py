"""What a finished run came to, in a line."""

from __future__ import annotations

from typing import Any

from tracking.record import Result, headline


def result(*metrics: dict[str, float], **known: Any) -> Result:
    return Result("finished", {}, evaluations=[{"epoch_num": 1, "metrics": values} for values in metrics], **known)


def test_without_a_target_it_is_of_the_evaluation_and_not_of_the_training() -> None:
    declared = {"val_loss": "lower", "train_loss": "lower"}
    rows = {"train_loss": 0.25, "val_loss": 0.5}, {"train_loss": 0.2, "val_loss": 0.6}
    assert headline(result(*rows, directions=declared)) == "val_loss 0.5 at best"
    assert headline(result({"train_loss": 0.25}, directions=declared)) == "train_loss 0.25 at best"
    assert headline(result(*rows)) == "val_loss 0.6 at the end"


def test_a_target_says_which_way_is_better_also_in_results_of_older_versions() -> None:
    rows = {"val_loss": 0.5}, {"val_loss": 0.6}
    words = "target missed: val_loss 0.5 at best, val_loss <=0.1 was the target"
    assert headline(result(*rows, targets={"val_loss": "<=0.1"})) == words
