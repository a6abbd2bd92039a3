"""The epochs of MLPerf's log: the meaning of its numbers, and windows of throughput within epochs or blocks.

Logs number epochs from 0 or from 1. Their evaluations give the number of the last epoch or of completed epochs,
sometimes in samples, or as a fraction. Here epochs are counted from 1, and an evaluation gives the completed epochs. A
block of epochs counts as one interval, so that a log never makes more records than it has lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tracking.measure.programs.mlperf_lines import Entry
from tracking.measure.programs.rates import window
from tracking.measure.programs.submission import Submission
from tracking.record import Record

MAX_EPOCHS = 10_000  # in a block; a larger number does not count epochs
MAX_OPEN_BLOCKS = 4  # open blocks; with more, the oldest has lost its end
MAX_WINDOWS = 4  # per block, since the first two windows of a run do not count for its rate
WHOLE_SHARE = 0.995  # the share from which an epoch counts as whole, since its last batch may be dropped


@dataclass(frozen=True)
class Block:
    """A block of epochs. `end` is the number of epochs completed at its end, by the log's numbers."""

    count: float
    end: float
    start_sec: float
    num_started: int


class Epochs:
    """Tracks the epochs of a log. `begins`, `edge` and `block` take lines; `completed` reads an evaluation's number."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._first: float | None = None  # the first epoch's number
        self._epoch_size = 1  # by how much the log's number grows in an epoch: its samples, if the log counts samples
        self._finished = self._begun = 0.0  # epochs
        self._readings: dict[str, tuple[int, int]] = {}  # by the key of a line
        self._evaluated = 0.0  # completed epochs by the last evaluation
        self._epoch_start_sec: float | None = None  # the start of the epoch
        self._eval_sec = 0.0  # its seconds of evaluation
        self._eval_start_sec: float | None = None
        self._num_started = 0  # epochs that started by a line of their own
        self._blocks: dict[float, Block] = {}  # open ones, by the first epoch's number
        self._last_closed: float | None = None
        self._trained = 0  # samples

    def begins(self, raw: Any) -> None:
        """Note the start of an epoch in v0.5, which gives its number and has no line for its end."""
        number = self._epoch_number(raw)
        if number is not None and number > self._begun:
            self._begun = self._finished = number

    def completed(self, entry: Entry) -> float | None:
        """The epochs completed at an evaluation, by its line's number; None if not known.

        The meaning of the number is determined once, at the first number that the epochs so far explain.
        """
        number, benchmark = as_number(entry.metadata.get("epoch_num")), self._submission.benchmark
        if number is None or not benchmark.has_epochs:
            return None
        reading = self._readings.get(entry.key) or self._read(number)
        if reading is not None:
            self._readings[entry.key] = reading
        divisor, shift = reading or (self._epoch_size, int(number == 0))
        value = number / divisor + shift
        if value > max(MAX_EPOCHS, self._begun) or (benchmark.counts == "fractions" and not self._begun):
            self._submission.note("epoch_num", f"epoch_num {number:,.15g} of an evaluation")
            return None
        self._evaluated = value
        return value

    def _read(self, number: float) -> tuple[int, int] | None:
        """The divisor of the number and the summand that give completed epochs; None if the epochs do not show them.

        The number gives the completed epochs or the last epoch's number. An evaluation's line may come before that
        epoch's end, or after the start of the next one if it runs beside the training.
        """
        from_0, in_epoch = self._first == 0, self._begun > self._finished
        if not self._begun:
            return None
        if not number.is_integer():
            shifts = [each for each in (0, -1) if self._finished <= number / self._epoch_size + each <= self._begun]
            return (self._epoch_size, shifts[0]) if shifts else None
        for divisor in dict.fromkeys((self._epoch_size, self._submission.train_samples or 1)):
            value = number / divisor
            last = self._begun if in_epoch else self._finished
            if from_0 and value == 0:
                return divisor, 1
            if value in (self._finished, self._begun):
                return divisor, 0
            if from_0 and value + 1 == last:
                return divisor, 1
        return None

    def edge(self, entry: Entry, time_ms: int, clock_sec: float) -> list[Record]:
        """The record of an edge of an epoch or an evaluation, after the window that ends with it, if there is one."""
        part, is_epoch = 1.0, entry.key in ("epoch_start", "epoch_stop")
        if is_epoch and not self._submission.benchmark.has_epochs:
            return []
        number = self._epoch_number(entry.metadata.get("epoch_num")) if is_epoch else self.completed(entry)
        records: list[Record] = []
        if entry.key == "epoch_start":
            self._epoch_start_sec, self._eval_sec = clock_sec, 0.0
            self._num_started, self._begun = self._num_started + 1, self._finished + 1
        elif entry.key == "eval_start":
            self._eval_start_sec = clock_sec
        elif entry.key == "eval_stop" and self._eval_start_sec is not None:
            # An evaluation that began before the epoch runs beside the training and does not interrupt it.
            if self._epoch_start_sec is None or self._eval_start_sec >= self._epoch_start_sec:
                self._eval_sec += clock_sec - self._eval_start_sec
        elif entry.key == "epoch_stop" and self._epoch_start_sec is not None:
            part = self._part()
            seconds, self._epoch_start_sec = clock_sec - self._epoch_start_sec - self._eval_sec, None
            records = self._windows(part, 1, seconds, int(number or 0), time_ms, clock_sec)
            self._finished += part
        values = ({} if number is None else {"epoch_num": as_whole(number)}) | ({} if part == 1 else {"part": part})
        return [*records, Record("event", time_ms, clock_sec, key=entry.key, values=values)]

    def _part(self) -> float:
        """The trained part of an epoch that ends; a run may end within an epoch, as its last evaluation shows."""
        part = self._evaluated - self._finished
        ends_within = self._submission.benchmark.counts == "fractions" and 0 < part < WHOLE_SHARE
        return part if ends_within else 1.0

    def block(self, entry: Entry, time_ms: int, clock_sec: float) -> list[Record]:
        """The records of a block that ends, if the log has no lines for its epochs: one interval of all its epochs."""
        if self._submission.benchmark.counts != "epochs":
            return []
        if entry.key == "block_start":
            self._open_block(entry, clock_sec)
            return []
        block = self._close_block(entry.metadata.get("first_epoch_num"))
        if block is None or self._num_started > block.num_started or block.end <= self._finished:
            return []
        count, start = block.count, block.start_sec
        first, self._finished = int(self._finished) + 1, self._finished + count
        self._begun = max(self._begun, self._finished + sum(each.count for each in self._blocks.values()))
        parts = min(MAX_WINDOWS, math.ceil(count))
        last = {"epoch_num": as_whole(self._finished)} | ({} if count == 1 else {"part": as_whole(count)})
        start_ms = time_ms - round(1e3 * (clock_sec - start))
        return [
            Record("event", start_ms, start, key="epoch_start", values={"epoch_num": first}),
            *self._windows(count, parts, clock_sec - start, int(self._finished), time_ms, clock_sec),
            Record("event", time_ms, clock_sec, key="epoch_stop", values=last),
        ]

    def _open_block(self, entry: Entry, clock_sec: float) -> None:
        first, count = (as_number(entry.metadata.get(key)) for key in ("first_epoch_num", "epoch_count"))
        samples = self._submission.train_samples
        if first is None or not count:
            self._submission.note("block", "a block without first_epoch_num and epoch_count")
            return
        if self._first is None and samples > 1 and first == samples and count % samples == 0:
            self._epoch_size = samples  # the first epoch's number is that of an epoch's samples
        first, count = first / self._epoch_size, count / self._epoch_size
        if count > MAX_EPOCHS:
            self._submission.note("block", f"epoch_count {count:,.15g} of a block")
            return
        self._first = first if self._first is None else self._first
        if len(self._blocks) >= MAX_OPEN_BLOCKS:
            self._blocks.pop(next(iter(self._blocks)))
        self._blocks[first] = Block(count, first - self._first + count, clock_sec, self._num_started)
        self._begun = max(self._begun, self._finished + count)

    def _close_block(self, raw: Any) -> Block | None:
        """The block that ends: by the first epoch in its last line, else the oldest one.

        Some logs give another number there, begin the next block earlier, or repeat a line.
        """
        number = as_number(raw)
        first = None if number is None else number / self._epoch_size
        repeated, self._last_closed = first is not None and first == self._last_closed, first
        if first not in self._blocks:
            first = None if repeated else next(iter(self._blocks), None)
        return None if first is None else self._blocks.pop(first)

    def _epoch_number(self, raw: Any) -> float | None:
        """The number of an epoch, from 1; None if the log does not give it."""
        number = as_number(raw)
        if number is None:
            return None
        self._first = number if self._first is None else self._first
        return number / self._epoch_size + (self._first == 0) if number.is_integer() else None

    def _windows(
        self, epochs: float, parts: int, seconds: float, number: int, time_ms: int, clock_sec: float
    ) -> list[Record]:
        """The windows of `epochs` epochs that end now: `parts` of equal length."""
        samples = self._submission.epoch_samples()
        before, self._trained = self._trained, self._trained + round(epochs * samples)
        if not samples or seconds <= 0:
            return []
        total, records = self._trained - before, []
        for part in range(1, parts + 1):
            from_end = seconds * (1 - part / parts)
            share = total * part // parts - total * (part - 1) // parts
            step, at_ms = before + total * part // parts, time_ms - round(1e3 * from_end)
            records.append(window(share, seconds / parts, number, step, at_ms, clock_sec - from_end))
        return records


def as_number(raw: Any) -> float | None:
    """A number that may count epochs; None for anything else."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw < 2**53:
        return None
    return float(raw)


def as_whole(number: float) -> float:
    """The number, as an int if it is whole, which is shorter to read."""
    return int(number) if float(number).is_integer() else number
