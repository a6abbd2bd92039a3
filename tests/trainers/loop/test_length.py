"""A schedule of steps is trained to its last step, whatever the data's length; what the user gives comes first."""

from __future__ import annotations

from typing import Any

import pytest

from conf.schema import RunConfig
from trainers.loop.evaluation_times import Length, length_of
from trainers.workload import TrialModule


class Module(TrialModule):
    def __init__(self, max_steps: int | None) -> None:
        super().__init__()
        self.max_epochs, self.max_steps = 7, max_steps


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
