"""After which steps a training is evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.evaluation import Intervals
from conf.schema import ConfigError
from tracking.measure.training import EvaluationPlan, plan_evaluations


def steps(plan: EvaluationPlan) -> list[int]:
    return [step for step in range(1, plan.num_steps + 1) if plan.evaluates_after(step)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Intervals(), [4, 8, 12]),
        (Intervals(every_steps=5), [5, 10, 12]),
        (Intervals(every_samples=20), [2, 4, 6, 8, 10, 12]),
        (Intervals(every_samples=1), list(range(1, 13))),
        (Intervals(at_epochs=(1, 3)), [4, 12]),
        (Intervals(after_steps=5), [8, 12]),
        (Intervals(every_steps=2, after_steps=5), [6, 8, 10, 12]),
    ],
)
def test_it_is_where_it_was_asked_for(asked: Intervals, expected: list[int]) -> None:
    assert steps(plan_evaluations(asked, 4, 3, 10, limited=False)) == expected


@pytest.mark.parametrize(
    ("asked", "limited", "words"),
    [
        (Intervals(every_steps=13), False, "eval_every_steps=13: is longer than the training: .* has 12 steps"),
        (Intervals(every_samples=126), False, r"eval_every_samples=126 \(13 steps of 10 samples\): is longer"),
        (Intervals(every_samples=50), True, r"limit_train_batches=4: is smaller than eval_every_samples=50 \(5 steps"),
        (Intervals(after_steps=12), False, "eval_after_steps=12: leaves only the last evaluation"),
        (Intervals(at_epochs=(2, 4)), False, r"eval_at_epochs=\[2, 4\]: .*Next: give epochs up to 3"),
    ],
)
def test_what_is_longer_than_the_training_is_refused(asked: Intervals, limited: bool, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_evaluations(asked, 4, 3, 10, limited=limited)


@given(st.integers(1, 50), st.integers(1, 8), st.integers(1, 400), st.integers(0, 400))
def test_the_last_step_is_evaluated_and_the_rest_are_whole_intervals(
    num_batches: int, epochs: int, every: int, after: int
) -> None:
    total = num_batches * epochs
    if every > total or after >= total:
        return
    intervals = Intervals(every_steps=every, after_steps=after or None)
    plan = plan_evaluations(intervals, num_batches, epochs, 32, limited=False)
    due = steps(plan)
    assert due[-1] == total
    assert due[:-1] == [step for step in range(every, total, every) if step >= after]
    assert [plan.epochs(step) for step in due] == pytest.approx([step / num_batches for step in due], abs=1e-6)
    assert all(isinstance(plan.epochs(step), int) == (step % num_batches == 0) for step in due)


def test_what_identifies_the_interval_is_in_samples() -> None:
    assert plan_evaluations(Intervals(), 4, 3, 10, limited=False).params() == {}
    every = plan_evaluations(Intervals(every_samples=24, after_steps=6), 4, 3, 10, limited=False)
    assert every.params() == {"eval_interval_samples": 20, "eval_after_samples": 60}
    assert every.rounding_note() == "every 2 steps, which is 20 samples (requested: 24)"
    same = plan_evaluations(Intervals(every_steps=2, after_steps=6), 4, 3, 10, limited=False)
    assert (same.params(), same.rounding_note()) == (every.params(), "")
    assert plan_evaluations(Intervals(at_epochs=(1, 3)), 4, 3, 10, limited=False).params() == {"eval_at_epochs": "1,3"}
