"""Joins the attempts of an interrupted and resumed run: what counts, what was lost, how long, and how much is left.

A `resume` event begins each attempt after the first. It has the epoch after which the attempt continues (`epoch_num`),
or the step of the next epoch (`step`). Later events of earlier attempts are superseded: the journal keeps them, and no
figure counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from conf.target import Target, meets_target
from tracking.record import typed_json
from tracking.record.journal import Record

RESUME = "resume"


def split(events: Sequence[Record]) -> list[list[Record]]:
    """The events of each attempt, in order; one list for a run that was never resumed."""
    attempts: list[list[Record]] = [[]]
    for event in events:
        if event.key == RESUME:
            attempts.append([])
        attempts[-1].append(event)
    return attempts


def surviving(events: Sequence[Record]) -> list[int]:
    """The indices of the events that led to the result.

    An attempt counts up to the epoch or step after which the next one continued. Later attempts count from their
    `run_start` on: importing and compiling again does not belong to the training. An epoch that continues after a step
    has one start.
    """
    kept: list[int] = []
    before_run_start = False  # whether a later attempt is before its run_start
    continued_epoch = 0  # the epoch in which an attempt continues after a step
    for place, event in enumerate(events):
        if event.key == RESUME:
            first_later = _superseded(events, kept, event)
            kept = [i for i in kept if i < first_later]
            before_run_start, continued_epoch = True, event.values["epoch_num"] + 1 if event.values.get("step") else 0
        before_run_start = before_run_start and event.key != "run_start"
        restarts_epoch = event.key == "epoch_start" and event.values.get("epoch_num") == continued_epoch
        if not before_run_start and not restarts_epoch:
            kept.append(place)
        continued_epoch = 0 if restarts_epoch else continued_epoch
    return kept


def _superseded(events: Sequence[Record], kept: Sequence[int], resume: Record) -> int:
    """The index of the first kept event that the resumed attempt supersedes."""
    epoch, step = resume.values["epoch_num"], resume.values.get("step", 0)
    if step:
        made = [i for i in kept if events[i].key == "checkpoint_stop" and events[i].values.get("step") == step]
        if made:
            return made[-1] + 1
    later = (i for i in kept if events[i].key == "epoch_start" and events[i].values["epoch_num"] > epoch)
    return next(later, len(events))


def spliced(events: Sequence[Record], places: Sequence[int]) -> list[Record]:
    """The events at `places` on one clock, which stands still between two attempts."""
    attempt = _attempt_of_each(events)
    records: list[Record] = []
    shift = 0.0
    for before, place in zip([None, *places], places, strict=False):
        clock_sec = events[place].clock_sec
        if before is not None and attempt[before] != attempt[place]:
            shift = records[-1].clock_sec - clock_sec
        records.append(replace(events[place], clock_sec=clock_sec + shift))
    return records


def history(events: Sequence[Record]) -> list[Record]:
    """The events that led to the result, as if the run had never been interrupted."""
    return spliced(events, surviving(events))


def newest_resume(events: Sequence[Record]) -> Record | None:
    """The event that began the current attempt; None in the first attempt."""
    return next((event for event in reversed(events) if event.key == RESUME), None)


def elapsed(events: Sequence[Record]) -> list[float] | None:
    """Seconds from the first event to each event, including the time between attempts.

    The monotonic clock counts within an attempt, the wall clock between two, since the machine may have been rebooted.
    None if the wall clock went backwards between two attempts.
    """
    seconds = [0.0]
    for before, event in pairwise(events):
        apart_sec = event.clock_sec - before.clock_sec
        if event.key == RESUME:
            apart_sec = (event.time_ms - before.time_ms) / 1e3
            if apart_sec < 0:
                return None
        seconds.append(seconds[-1] + apart_sec)
    return seconds


def trained_sec(events: Sequence[Record]) -> float:
    """Seconds from `run_start` to the last event, summed over the attempts, including lost training."""
    total_sec = 0.0
    for attempt in split(events):
        start = next((event for event in attempt if event.key == "run_start"), None)
        total_sec += attempt[-1].clock_sec - start.clock_sec if start is not None else 0.0
    return total_sec


def reached(metrics: Mapping[str, float], targets: Mapping[str, Target]) -> bool:
    """Whether every target is met. A metric that is missing or not finite meets no target."""
    return bool(targets) and all(
        meets_target(metrics.get(name, float("nan")), target) for name, target in targets.items()
    )


def censored_sec(events: Sequence[Record], targets: Mapping[str, Target]) -> float | None:
    """The censoring time of a run that missed its targets: seconds from `run_start` to `run_stop`, or the last event.

    None if it met its targets, has no targets, never started its clock, or was resumed (its time was interrupted).
    """
    start = next((event for event in events if event.key == "run_start"), None)
    resumed = any(event.key == RESUME for event in events)
    met = any(event.key == "eval_accuracy" and reached(event.values["metrics"], targets) for event in events)
    if start is None or resumed or met or not targets:
        return None
    end = next((event for event in events if event.key == "run_stop"), events[-1])
    return end.clock_sec - start.clock_sec


def last_step(events: Sequence[Record]) -> int:
    """The highest global step among the windows of these events; 0 without windows."""
    return max((int(event.values["step"]) for event in events if event.key == "throughput_window"), default=0)


def _attempt_of_each(events: Sequence[Record]) -> list[int]:
    """The index of each event's attempt, from 0."""
    return list(accumulate(int(event.key == RESUME) for event in events))


class Schedule:
    """The place of a run in its schedule, from the events of its journal.

    `step` is the newest global step. For events that begin after a `resume`, it is the step that the attempt continues
    from. `epochs` and `batches` (of an epoch) are 0 if they are not known, as for a program.
    """

    def __init__(self, step: int = 0) -> None:
        self.step = step
        self.epochs = self.batches = 0
        self._began: tuple[float, int] | None = None  # seconds and steps at the start of this attempt's first epoch

    @property
    def num_steps(self) -> int:
        """Steps of the whole schedule; 0 if not known."""
        return self.epochs * self.batches

    def see(self, event: Record) -> None:
        values = event.values
        if event.key == RESUME:  # Steps of the earlier attempt beyond this one are trained again.
            self.step, self._began = int(values.get("from_step", 0)), None
        elif event.key == "run_start":
            self.epochs, self.batches = (int(values.get(name) or 0) for name in ("max_epochs", "num_batches"))
        elif event.key == "epoch_start" and self._began is None and typed_json.is_number(values.get("epoch_num")):
            first_step = int((values["epoch_num"] - 1) * self.batches)
            self.step = max(first_step, self.step)  # It may continue within an epoch.
            self._began = event.clock_sec, self.step
        elif event.key == "throughput_window":
            self.step = int(values.get("step", self.step))

    def left_sec(self, now_sec: float) -> float | None:
        """Seconds for the rest of the schedule at this attempt's pace; None before its first window.

        `now_sec` is the present time on the events' clock. The target may be reached earlier.
        """
        if not self.num_steps or self._began is None or self.step <= self._began[1]:
            return None
        began_sec, began_step = self._began
        return (now_sec - began_sec) / (self.step - began_step) * max(0, self.num_steps - self.step)
