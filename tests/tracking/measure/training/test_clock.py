"""Time to accuracy from events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.measure.training import clock
from tracking.record import attempts
from tracking.record.journal import Record


def event(key: str, at: float, value: float | None = None, **values: Any) -> Record:
    return Record("event", int(at * 1000), at, key, value, values=values)


def run(accuracies: list[float], train: float = 10.0, evaluate: float = 2.0) -> list[Record]:
    """A run that starts its command at 0 and its clock at 100, and evaluates after every epoch."""
    events = [
        event("init_start", 3.0, since_command_sec=3.0),
        event("warmup_start", 50.0),
        event("warmup_stop", 90.0),
        event("run_start", 100.0),
    ]
    now = 100.0
    for number, accuracy in enumerate(accuracies, 1):
        events += [event("epoch_start", now, epoch_num=number), event("epoch_stop", now + train, epoch_num=number)]
        now += train
        events.append(event("eval_start", now, epoch_num=number))
        now += evaluate
        events.append(event("eval_accuracy", now, accuracy, epoch_num=number, metrics={"accuracy": accuracy}))
        events.append(event("eval_stop", now, epoch_num=number))
    return [*events, event("run_stop", now)]


def test_both_clocks_stop_at_the_evaluation_that_reaches_the_target() -> None:
    summary = clock.summarize(run([0.5, 0.8, 0.9, 0.95]), {"accuracy": 0.9})
    assert summary == {
        "time/init_sec": 100.0,
        "time/compile_sec": 40.0,
        "time/train_sec": 40.0,
        "time/epoch_sec": 10.0,
        "time/eval_sec": 8.0,
        "time/to_accuracy_sec": 36.0,
        "time/to_accuracy_train_sec": 30.0,
        "time/evaluation_interval_sec": 12.0,
        "epochs/to_accuracy": 3.0,
        "epochs/trained": 4.0,
        "evaluations/to_accuracy": 3.0,
        "target_reached": 1.0,
    }


def test_a_missed_target_has_no_time_to_accuracy() -> None:
    summary = clock.summarize(run([0.5, 0.8]), {"accuracy": 0.9})
    assert summary["target_reached"] == 0.0
    assert not [key for key in summary if key.startswith("time/to_accuracy")]
    assert summary["time/censored_sec"] == 24.0  # It had not been reached by then.
    assert summary["evaluations/censored"] == 2.0
    assert summary["time/evaluation_interval_sec"] == 12.0  # the last one
    assert "evaluations/to_accuracy" not in summary


def test_when_a_run_was_given_up_is_known_of_one_that_has_a_target_and_was_not_resumed() -> None:
    missed = run([0.5, 0.8])
    target = {"accuracy": 0.9}
    assert attempts.censored_sec(missed, target) == 24.0
    assert attempts.censored_sec([*missed, event("eval_start", 130.0)], target) == 24.0  # on the test set, afterwards
    assert attempts.censored_sec(missed[:-3], target) == 22.0  # cut off within an evaluation
    assert attempts.censored_sec(missed[:3], target) is None  # before its clock began
    assert attempts.censored_sec(missed, {}) is None
    assert attempts.censored_sec(run([0.5, 0.95, 0.96]), target) is None
    assert attempts.censored_sec([*missed, event("resume", 130.0, epoch_num=1)], target) is None


def evaluated(at: float, number: int | None = None, **metrics: float) -> Record:
    return event("eval_accuracy", at, metrics=metrics, **({} if number is None else {"eval_num": number}))


def test_the_interval_is_that_before_the_evaluation_which_reached_the_target() -> None:
    events = [event("run_start", 100.0), evaluated(103.0, accuracy=0.1), evaluated(110.0, accuracy=0.9)]
    target = {"accuracy": 0.9}
    assert clock.summarize([*events, evaluated(150.0, accuracy=0.95)], target) == {
        "target_reached": 1.0, "time/evaluation_interval_sec": 7.0, "evaluations/to_accuracy": 2.0,
        "time/to_accuracy_sec": 10.0, "time/to_accuracy_train_sec": 10.0,
    }  # fmt: skip
    at_once = clock.summarize([events[0], events[2]], target)
    assert (at_once["evaluations/to_accuracy"], at_once["time/evaluation_interval_sec"]) == (1.0, 10.0)
    assert "time/evaluation_interval_sec" not in clock.summarize(events[:1], target)
    assert not [key for key in clock.summarize(events, {}) if "evaluation" in key]


def test_what_cannot_reach_the_target_is_no_evaluation_of_it() -> None:
    """A program may say its loss on a line of its own, and evaluate before its clock starts."""
    events = [evaluated(90.0, accuracy=0.1), event("run_start", 100.0), evaluated(104.0, accuracy=0.5)]
    events += [evaluated(104.5, loss=1.0), evaluated(109.0, accuracy=0.9), evaluated(109.5, loss=0.9)]
    summary = clock.summarize(events, {"accuracy": 0.9})
    assert (summary["evaluations/to_accuracy"], summary["time/evaluation_interval_sec"]) == (2.0, 5.0)


def test_evaluations_that_the_journal_left_out_are_counted() -> None:
    events = [event("run_start", 0.0), evaluated(1.0, accuracy=0.1), evaluated(9.0, 5, accuracy=0.9)]
    summary = clock.summarize(events, {"accuracy": 0.9})
    assert (summary["evaluations/to_accuracy"], summary["time/evaluation_interval_sec"]) == (5.0, 2.0)


def test_a_run_without_a_target_reached_nothing_and_missed_nothing() -> None:
    assert "target_reached" not in clock.summarize(run([0.5]), {})


def test_a_run_that_never_started_its_clock_has_no_times() -> None:
    assert clock.summarize([event("init_start", 1.0)], {"accuracy": 0.9}) == {}


def test_every_target_has_to_be_reached_at_once() -> None:
    targets = {"box": 0.3, "mask": 0.2}
    assert not attempts.reached({"box": 0.4, "mask": 0.1}, targets)
    assert not attempts.reached({"box": 0.4}, targets)
    assert not attempts.reached({"box": float("nan"), "mask": 0.3}, targets)
    assert attempts.reached({"box": 0.3, "mask": 0.2}, targets)


def test_checkpoints_are_off_dawnbenchs_clock_only() -> None:
    events = run([0.95])
    events[5:5] = [event("checkpoint_start", 104.0), event("checkpoint_stop", 107.0)]
    summary = clock.summarize(events, {"accuracy": 0.9})
    assert summary["time/to_accuracy_sec"] == 12.0
    assert summary["time/to_accuracy_train_sec"] == 7.0


def test_a_clock_that_goes_back_is_an_error() -> None:
    with pytest.raises(ValueError, match="clock went back"):
        clock.summarize([event("run_start", 0.0), event("epoch_start", 5.0), event("epoch_stop", 4.0)], {})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1), st.floats(0.001, 1e4), st.floats(0.001, 1e4))
def test_the_clocks_differ_by_the_evaluations_and_a_prefix_decides(
    accuracies: list[float], target: float, train: float, evaluate: float
) -> None:
    events = run(accuracies, train, evaluate)
    summary = clock.summarize(events, {"accuracy": target})
    hits = [number for number, accuracy in enumerate(accuracies, 1) if accuracy >= target]
    assert summary["target_reached"] == float(bool(hits))
    if hits:
        assert summary["epochs/to_accuracy"] == summary["evaluations/to_accuracy"] == hits[0]
        assert summary["time/evaluation_interval_sec"] == pytest.approx(train + evaluate, rel=1e-6)
        assert summary["time/to_accuracy_sec"] == pytest.approx(hits[0] * (train + evaluate), rel=1e-6)
        assert summary["time/to_accuracy_train_sec"] == pytest.approx(hits[0] * train, rel=1e-6, abs=1e-6)
