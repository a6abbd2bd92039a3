"""A schedule of steps is trained to its last step, whatever the data's length; what the user gives comes first."""

from __future__ import annotations

from typing import Any

import pytest

from conf.schema import ConfigError, RunConfig
from trainers.loop.evaluation_times import Length, length_of
from trainers.workload import TrialModule


class Module(TrialModule):
    def __init__(self, max_steps: int | None, ends_at_zero: bool = False) -> None:
        super().__init__()
        self.max_epochs, self.max_steps, self.ends_at_zero = 7, max_steps, ends_at_zero


@pytest.mark.parametrize(
    ("steps", "num_batches", "expected"),
    [
        (3250, 19_000, Length(1, 3250)),
        (3250, 3250, Length(1, 3250)),
        (1000, 300, Length(4, None, 1000)),
        (1001, 300, Length(4, None, 1001)),
        (900, 300, Length(3, None, 900)),
        (3, 1, Length(3, None, 3)),
        (None, 300, Length(7, None)),
    ],
)
def test_of_the_schedule(steps: int | None, num_batches: int, expected: Length) -> None:
    assert length_of(RunConfig(gpus=0), Module(steps), num_batches) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"max_epochs": 2}, Length(2, None)),
        ({"limit_train_batches": 5}, Length(7, 5)),
        ({"max_epochs": 2, "limit_train_batches": 5}, Length(2, 5)),
    ],
)
def test_as_it_was_asked_for(asked: dict[str, Any], expected: Length) -> None:
    assert length_of(RunConfig(gpus=0, **asked), Module(1000), 300) == expected


@pytest.mark.parametrize(
    ("steps", "asked", "expected"),
    [
        (None, {"max_epochs": 7}, Length(7, None)),
        (1000, {"max_epochs": 3}, Length(3, None)),
        (1000, {"max_epochs": 4}, Length(4, None, 1000)),
        (200, {"max_epochs": 1}, Length(1, 200)),
        (200, {"limit_train_batches": 250}, Length(1, 200)),
        (1000, {"max_epochs": 9, "limit_train_batches": 110}, Length(9, 110)),
        (1000, {"max_epochs": 10, "limit_train_batches": 110}, Length(10, 110, 1000)),
    ],
)
def test_no_step_is_trained_at_a_rate_of_zero(steps: int | None, asked: dict[str, Any], expected: Length) -> None:
    assert length_of(RunConfig(gpus=0, **asked), Module(steps, ends_at_zero=True), 300) == expected


@pytest.mark.parametrize(
    ("steps", "asked", "words"),
    [
        (None, {"max_epochs": 8}, ("max_epochs=8: ", "up to 7. ", "by model.hparams.epochs")),
        (1000, {"max_epochs": 5}, ("max_epochs=5: ", "up to 4. ", "by model.hparams.steps")),
        (1000, {"max_epochs": 9, "limit_train_batches": 200}, ("max_epochs=9: ", "up to 5. ", "hparams.steps")),
    ],
)
def test_beyond_a_schedule_that_ends_at_zero(steps: int | None, asked: dict[str, Any], words: tuple[str, ...]) -> None:
    config = RunConfig(gpus=0, **asked)
    assert length_of(config, Module(steps), 300).max_epochs == asked["max_epochs"]
    with pytest.raises(ConfigError) as refused:
        length_of(config, Module(steps, ends_at_zero=True), 300)
    assert all(word in str(refused.value) for word in words)
