"""What is reported of runs that were interrupted, however often, wherever, and on whichever clocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.measure.training import clock, throughput
from tracking.record import attempts
from tracking.record.journal import Record

TRAIN, EVAL, CHECKPOINT, INIT = 10.0, 2.0, 1.0, 5.0  # seconds of each
STEPS = 4  # an epoch, in two windows


@dataclass
class Simulation:
    """Writes the events of a run, and keeps what is true of it in words of its own."""

    every_epochs: int
    num_epochs: int
    events: list[Record] = field(default_factory=list)
    wall_sec: float = 1e6
    boot_sec: float = 0.0  # when the monotonic clock was zero
    done: int = 0  # epochs of the training that led to the result
    saved: list[int] = field(default_factory=list)
    standing_sec: float = 0.0
    worked_sec: float = 0.0
    began_sec: float = 0.0  # the first run_start's

    def event(self, key: str, value: float | None = None, **values: Any) -> None:
        self.events.append(
            Record("event", round(self.wall_sec * 1e3), self.wall_sec - self.boot_sec, key, value, values=values)
        )

    def passes(self, sec: float, working: bool = True) -> None:
        self.wall_sec += sec
        self.worked_sec += sec if working else 0.0
        self.standing_sec += 0.0 if working else sec

    def starts(self) -> None:
        first = not self.events
        self.event("init_start", since_command_sec=0.0)
        self.passes(INIT, working=False)
        self.event("run_start", max_epochs=self.num_epochs)
        if first:
            self.began_sec, self.standing_sec = self.wall_sec, 0.0

    def trains(self, epoch: int) -> None:
        self.event("epoch_start", epoch_num=epoch)
        for half in (1, 2):
            self.passes(TRAIN / 2)
            self.window(epoch, (epoch - 1) * STEPS + 2 * half)
        self.event("epoch_stop", epoch_num=epoch, samples=128)
        self.event("eval_start", epoch_num=epoch)
        self.passes(EVAL)
        self.event("eval_accuracy", epoch_num=epoch, metrics={"accuracy": epoch / self.num_epochs})
        self.event("eval_stop", epoch_num=epoch)
        self.done = epoch
        if epoch % self.every_epochs == 0 and epoch < self.num_epochs:
            self.event("checkpoint_start", epoch_num=epoch)
            self.passes(CHECKPOINT)
            self.event("checkpoint_stop", epoch_num=epoch)
            self.saved.append(epoch)

    def window(self, epoch: int, step: int) -> None:
        """Two steps."""
        window = throughput.Window(step, epoch, 64, (5.0,), (0.0,), (2.5, 2.5), (0.0, 0.0))
        self.event("throughput_window", **throughput.event_values(window))

    def is_cut_off(self, half_epoch: bool, down_sec: float, back: int) -> None:
        """In the next epoch, or at its end; then resumed from the newest checkpoint but `back`."""
        if half_epoch:
            self.event("epoch_start", epoch_num=self.done + 1)
            self.passes(TRAIN / 2)
            self.window(self.done + 1, self.done * STEPS + 2)
        self.passes(down_sec, working=False)
        self.boot_sec = self.wall_sec - 7.0  # the machine was started anew
        self.done = self.saved[-1 - min(back, len(self.saved) - 1)]
        self.saved = [epoch for epoch in self.saved if epoch <= self.done]
        self.event("resume", epoch_num=self.done, from_step=self.done * STEPS)
        self.starts()


@st.composite
def interrupted(draw: st.DrawFn) -> Simulation:
    run = Simulation(draw(st.integers(1, 3)), draw(st.integers(4, 9)))
    run.starts()
    for _ in range(draw(st.integers(1, 4))):
        until = draw(st.integers(max(run.done, run.every_epochs), run.num_epochs - 1))
        while run.done < until:
            run.trains(run.done + 1)
        run.is_cut_off(draw(st.booleans()), draw(st.floats(0.0, 1e5)), draw(st.integers(0, 2)))
    while run.done < run.num_epochs:
        run.trains(run.done + 1)
    run.event("run_stop")
    return run


@given(interrupted())
def test_every_epoch_counts_once_and_what_was_lost_is_told(run: Simulation) -> None:
    summary = clock.summarize(run.events, {"accuracy": 1.0})
    num_checkpoints = len([epoch for epoch in range(1, run.num_epochs) if epoch % run.every_epochs == 0])
    kept_sec = run.num_epochs * (TRAIN + EVAL) + num_checkpoints * CHECKPOINT
    assert summary.pop("time/evaluation_interval_sec") >= TRAIN + EVAL  # with what stood still or was lost between
    assert summary == {
        "time/init_sec": pytest.approx(INIT),
        "time/train_sec": pytest.approx(run.num_epochs * TRAIN),
        "time/epoch_sec": pytest.approx(TRAIN),
        "time/eval_sec": pytest.approx(run.num_epochs * EVAL),
        "time/checkpoint_sec": pytest.approx(num_checkpoints * CHECKPOINT),
        "checkpoint/num_failed": 0.0,
        "target_reached": 1.0,
        "epochs/to_accuracy": run.num_epochs,
        "evaluations/to_accuracy": run.num_epochs,
        "epochs/trained": run.num_epochs,
        "resume/count": sum(event.key == "resume" for event in run.events),
        "resume/lost_sec": pytest.approx(run.worked_sec - kept_sec, abs=1e-6),
        "resume/down_sec": pytest.approx(run.standing_sec, abs=0.01),
        "time/resumed_to_accuracy_sec": pytest.approx(run.wall_sec - run.began_sec, abs=0.01),
        "time/resumed_to_accuracy_train_sec": pytest.approx(run.num_epochs * TRAIN),
    }


@given(interrupted())
def test_the_windows_that_count_are_of_every_step_once_but_the_first_two_of_an_attempt(run: Simulation) -> None:
    steps = [window.step for window in throughput.read_windows(attempts.history(run.events))]
    all_steps = range(2, run.num_epochs * STEPS + 1, 2)
    resumed = [event.values["from_step"] for event in run.events if event.key == "resume"]
    cold = {step + later for step in resumed for later in (2, 4)}
    assert sorted(set(all_steps) - set(steps)) == [step for step in all_steps if step not in steps]
    assert set(all_steps) - set(steps) <= cold
    assert steps == sorted(set(steps))
    last_resume = next(event for event in reversed(run.events) if event.key == "resume")
    assert not {last_resume.values["from_step"] + later for later in (2, 4)} & set(steps)


@given(interrupted())
def test_a_target_reached_before_an_interruption_was_reached_then(run: Simulation) -> None:
    """Where it trains on behind the target. The time is still not one of an uninterrupted run."""
    summary = clock.summarize(run.events, {"accuracy": 1 / run.num_epochs})
    assert summary["time/resumed_to_accuracy_sec"] == pytest.approx(TRAIN + EVAL, abs=0.01)
    assert summary["time/resumed_to_accuracy_train_sec"] == pytest.approx(TRAIN)
    assert "time/to_accuracy_sec" not in summary


def cut_off_once(down_sec: float = 100.0) -> Simulation:
    run = Simulation(every_epochs=1, num_epochs=3)
    run.starts()
    run.trains(1)
    run.is_cut_off(half_epoch=True, down_sec=down_sec, back=0)
    run.trains(2)
    run.trains(3)
    run.event("run_stop")
    return run


def test_where_the_wall_clock_went_back_between_nobody_knows_how_long_it_stood() -> None:
    run = cut_off_once()
    place = next(place for place, event in enumerate(run.events) if event.key == "resume")
    events = [
        replace(event, time_ms=event.time_ms - 10**6) if index >= place else event
        for index, event in enumerate(run.events)
    ]
    summary = clock.summarize(events, {"accuracy": 1.0})
    assert "resume/down_sec" not in summary
    assert "time/resumed_to_accuracy_sec" not in summary
    assert summary["time/resumed_to_accuracy_train_sec"] == pytest.approx(3 * TRAIN)
    assert summary["resume/lost_sec"] == pytest.approx(TRAIN / 2)


def test_a_crash_may_have_eaten_the_last_line_about_the_checkpoint() -> None:
    run = cut_off_once()
    events = [event for event in run.events if event.key != "checkpoint_stop" or event.values["epoch_num"] != 1]
    summary = clock.summarize(events, {"accuracy": 1.0})
    assert summary["time/checkpoint_sec"] == pytest.approx(CHECKPOINT), "that of epoch 2 alone"
    assert summary["time/train_sec"] == pytest.approx(3 * TRAIN)
    counted = summary["time/resumed_to_accuracy_train_sec"]
    assert 3 * TRAIN <= counted <= 3 * TRAIN + CHECKPOINT + 1e-6


def test_an_attempt_that_never_came_to_train_lost_nothing() -> None:
    run = Simulation(every_epochs=1, num_epochs=2)
    run.starts()
    run.trains(1)
    run.is_cut_off(half_epoch=False, down_sec=10.0, back=0)
    run.events = run.events[:-1]  # its run_start: it was cut off before
    run.passes(20.0, working=False)
    run.event("resume", epoch_num=1, from_step=STEPS)
    run.starts()
    run.trains(2)
    summary = clock.summarize(run.events, {"accuracy": 1.0})
    assert summary["resume/count"] == 2
    assert summary["resume/lost_sec"] == pytest.approx(0.0, abs=1e-6)
    assert summary["resume/down_sec"] == pytest.approx(10.0 + 2 * INIT + 20.0, abs=0.01)


def test_a_failed_checkpoint_is_counted_and_its_time_too() -> None:
    run = Simulation(every_epochs=1, num_epochs=3)
    run.starts()
    for epoch in (1, 2, 3):
        run.trains(epoch)
    events = [
        replace(event, values=event.values | {"error": "No space left on device"})
        if event.key == "checkpoint_stop" and event.values["epoch_num"] == 2
        else event
        for event in run.events
    ]
    summary = clock.summarize(events, {"accuracy": 1.0})
    assert summary["checkpoint/num_failed"] == 1
    assert summary["time/checkpoint_sec"] == pytest.approx(2 * CHECKPOINT)
    assert summary["time/to_accuracy_sec"] - summary["time/to_accuracy_train_sec"] == pytest.approx(
        3 * EVAL + 2 * CHECKPOINT
    ), "checkpoints are on MLPerf's clock and off DAWNBench's"


def test_an_attempt_goes_on_after_a_step() -> None:
    """Rows after that step's checkpoint are superseded, and the continued epoch has one start."""

    def at(sec: float, key: str, **values: Any) -> Record:
        return Record("event", round(sec * 1e3), sec, key, values=values)

    events = [
        at(0, "run_start"), at(0, "epoch_start", epoch_num=1), at(10, "epoch_stop", epoch_num=1, samples=64),
        at(10, "epoch_start", epoch_num=2), at(12, "throughput_window", step=6), at(14, "checkpoint_start", step=7),
        at(15, "checkpoint_stop", step=7), at(16, "throughput_window", step=8), at(17, "checkpoint_saved", step=7),
        at(30, attempts.RESUME, epoch_num=1, step=7, from_step=7, checkpoint="", after="signal:9"),
        at(40, "run_start"), at(41, "epoch_start", epoch_num=2), at(45, "throughput_window", step=8),
        at(50, "epoch_stop", epoch_num=2, samples=64), at(50, "epoch_start", epoch_num=3), at(60, "run_stop"),
    ]  # fmt: skip
    history = attempts.history(events)
    assert [event.key for event in history if event.key.startswith("epoch")] == [
        "epoch_start", "epoch_stop", "epoch_start", "epoch_stop", "epoch_start",
    ]  # fmt: skip
    assert [event.values["step"] for event in history if event.key == "throughput_window"] == [6, 8]
    assert clock.intervals(history, "epoch") == [(0, 10), (10, 25)], "15 s before the checkpoint's end, 10 s behind it"
    assert clock.summarize(events, {})["time/train_sec"] == 24, "the checkpoint within an epoch is no training"
    assert clock.summarize(events, {})["resume/lost_sec"] == 2
