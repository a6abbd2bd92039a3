"""What a training hands over, as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from conf.schema import ConfigError
from tracking.api.samples import decimal, first_dimension
from tracking.api.script_arguments import sample_count
from tracking.api.training_setup import innermost


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (torch.tensor(95).float() / 100, 0.95),
        (torch.tensor([0.1], dtype=torch.float16), 0.1),
        (torch.tensor(0.1, dtype=torch.float64), 0.1),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (torch.tensor(7), 7.0),
        (torch.tensor(float("inf")), float("inf")),
        (np.float32(0.7), 0.7),
        (np.float64(1 / 3), 1 / 3),
        (1e-45, 1e-45),
        (True, 1.0),
    ],
)
def test_a_value_is_the_shortest_number_that_stands_for_it(value: Any, number: float) -> None:
    assert decimal(value) == number


def test_the_samples_of_a_batch_are_those_of_its_first_tensor() -> None:
    assert first_dimension({"names": ["a", "b"], "x": [torch.tensor(1.0), torch.zeros(3, 2)]}) == 3
    assert first_dimension([torch.tensor(1.0), "words"]) is None


@pytest.mark.parametrize("value", [8, 8.0, np.int64(8), torch.tensor(8)])
def test_a_number_of_samples_may_be_of_any_whole_kind(value: Any) -> None:
    assert sample_count(value, "samples") == 8


@pytest.mark.parametrize("value", ["8", None, 0.5, -1, float("nan"), torch.zeros(2), [8]])
def test_what_is_no_number_of_samples_is_named(value: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"trial\.step\(num_samples\): .* is not a number of samples. Allowed: a whole"
    ):
        sample_count(value, "trial.step(num_samples)")


def test_the_optimizer_that_deepspeed_wraps_is_named_and_no_wrapper_of_the_users_own_is_opened() -> None:
    class Wrapper:
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

    class Theirs(Wrapper): ...

    Theirs.__module__ = "deepspeed.runtime.zero.stage_1_and_2"
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    assert innermost(Theirs(Theirs(sgd))) is innermost(sgd) is sgd
    lookahead = Wrapper(sgd)
    assert innermost(Theirs(lookahead)) is lookahead
