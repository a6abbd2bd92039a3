"""The epochs of MLPerf's log: the meaning of its numbers, and windows of throughput within epochs or blocks.

Logs number epochs from 0 or from 1. Their evaluations give the number of the last epoch or of completed epochs,
sometimes in samples, or as a fraction. Our records number epochs from 1, and an evaluation gives the completed epochs.
A block of epochs counts as one interval, so that a log never makes more records than it has lines.
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
WHOLE_SHARE = 0.995  # the least share that counts as a whole epoch, since its last batch may be dropped


@dataclass(frozen=True)
class Block:
    """A block of epochs. `end` is the number of epochs completed at its end, by the log's numbers."""

    count: float
    end: float
    start_sec: float
    num_start_lines: int


class Epochs:
    """Tracks the epochs of a log.

    `start_epoch`, `read_edge` and `read_block` take lines. `completed_epochs` reads the number of an evaluation's line.
    """

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._first_number: float | None = None  # the first epoch's number
        self._epoch_size = 1  # increase of the log's number in an epoch: 1, or its samples
        self._num_finished = self._num_begun = 0.0  # epochs
        self._conversions: dict[str, tuple[int, int]] = {}  # divisor and summand by the key of a line
        self._num_evaluated = 0.0  # completed epochs at the last evaluation
        self._epoch_start_sec: float | None = None
        self._eval_sec = 0.0  # the epoch's seconds of evaluation
        self._eval_start_sec: float | None = None
        self._num_start_lines = 0  # lines that start an epoch
        self._blocks: dict[float, Block] = {}  # open blocks by their first epoch's number
        self._last_closed: float | None = None
        self._trained_samples = 0

    def start_epoch(self, raw: Any) -> None:
        """Note the start of an epoch in v0.5, which gives its number and has no line for its end."""
        number = self._epoch_number(raw)
        if number is not None and number > self._num_begun:
            self._num_begun = self._num_finished = number

    def completed_epochs(self, entry: Entry) -> float | None:
        """The epochs completed at an evaluation, by its line's number; None if not known.

        The meaning of the number is determined once, at the first number that the epochs so far explain.
        """
        number, benchmark = as_number(entry.metadata.get("epoch_num")), self._submission.benchmark
        if number is None or not benchmark.has_epochs:
            return None
        conversion = self._conversions.get(entry.key) or self._find_conversion(number)
        if conversion is not None:
            self._conversions[entry.key] = conversion
        divisor, shift = conversion or (self._epoch_size, int(number == 0))
        value = number / divisor + shift
        if value > max(MAX_EPOCHS, self._num_begun) or (benchmark.counts == "fractions" and not self._num_begun):
            self._submission.note("epoch_num", f"epoch_num {number:,.15g} of an evaluation")
            return None
        self._num_evaluated = value
        return value

    def _find_conversion(self, number: float) -> tuple[int, int] | None:
        """The divisor and the summand that turn the number into completed epochs; None if the epochs do not show them.

        The number counts the completed epochs, or is that of the last epoch. An evaluation's line may come before the
        epoch's end. It may come after the start of the next epoch if the evaluation runs beside the training.
        """
        from_0, in_epoch = self._first_number == 0, self._num_begun > self._num_finished
        if not self._num_begun:
            return None
        if not number.is_integer():
            value = number / self._epoch_size
            shifts = [shift for shift in (0, -1) if self._num_finished <= value + shift <= self._num_begun]
            return (self._epoch_size, shifts[0]) if shifts else None
        for divisor in dict.fromkeys((self._epoch_size, self._submission.train_samples or 1)):
            value = number / divisor
            last = self._num_begun if in_epoch else self._num_finished
            if from_0 and value == 0:
                return divisor, 1
            if value in (self._num_finished, self._num_begun):
                return divisor, 0
            if from_0 and value + 1 == last:
                return divisor, 1
        return None

    def read_edge(self, entry: Entry, time_ms: int, clock_sec: float) -> list[Record]:
        """The record of the start or end of an epoch or an evaluation. A window that it ends comes before it."""
        part, is_epoch = 1.0, entry.key in ("epoch_start", "epoch_stop")
        if is_epoch and not self._submission.benchmark.has_epochs:
            return []
        number = self._epoch_number(entry.metadata.get("epoch_num")) if is_epoch else self.completed_epochs(entry)
        records: list[Record] = []
        if entry.key == "epoch_start":
            self._epoch_start_sec, self._eval_sec = clock_sec, 0.0
            self._num_start_lines, self._num_begun = self._num_start_lines + 1, self._num_finished + 1
        elif entry.key == "eval_start":
            self._eval_start_sec = clock_sec
        elif entry.key == "eval_stop" and self._eval_start_sec is not None:
            # An evaluation that began before the epoch runs beside the training and does not interrupt it.
            if self._epoch_start_sec is None or self._eval_start_sec >= self._epoch_start_sec:
                self._eval_sec += clock_sec - self._eval_start_sec
        elif entry.key == "epoch_stop" and self._epoch_start_sec is not None:
            part = self._trained_part()
            seconds, self._epoch_start_sec = clock_sec - self._epoch_start_sec - self._eval_sec, None
            records = self._windows(part, 1, seconds, int(number or 0), time_ms, clock_sec)
            self._num_finished += part
        values = ({} if number is None else {"epoch_num": as_whole(number)}) | ({} if part == 1 else {"part": part})
        return [*records, Record("event", time_ms, clock_sec, key=entry.key, values=values)]

    def _trained_part(self) -> float:
        """The trained part of an epoch that ends. The last evaluation shows whether the run ends within the epoch."""
        part = self._num_evaluated - self._num_finished
        ends_within = self._submission.benchmark.counts == "fractions" and 0 < part < WHOLE_SHARE
        return part if ends_within else 1.0

    def read_block(self, entry: Entry, time_ms: int, clock_sec: float) -> list[Record]:
        """The records of a block that ends, as one interval; [] if the log has lines for its epochs."""
        if self._submission.benchmark.counts != "epochs":
            return []
        if entry.key == "block_start":
            self._open_block(entry, clock_sec)
            return []
        block = self._close_block(entry.metadata.get("first_epoch_num"))
        if block is None or self._num_start_lines > block.num_start_lines or block.end <= self._num_finished:
            return []
        count, start = block.count, block.start_sec
        first, self._num_finished = int(self._num_finished) + 1, self._num_finished + count
        self._num_begun = max(self._num_begun, self._num_finished + sum(block.count for block in self._blocks.values()))
        parts = min(MAX_WINDOWS, math.ceil(count))
        last = {"epoch_num": as_whole(self._num_finished)} | ({} if count == 1 else {"part": as_whole(count)})
        start_ms = time_ms - round(1e3 * (clock_sec - start))
        return [
            Record("event", start_ms, start, key="epoch_start", values={"epoch_num": first}),
            *self._windows(count, parts, clock_sec - start, int(self._num_finished), time_ms, clock_sec),
            Record("event", time_ms, clock_sec, key="epoch_stop", values=last),
        ]

    def _open_block(self, entry: Entry, clock_sec: float) -> None:
        first, count = (as_number(entry.metadata.get(key)) for key in ("first_epoch_num", "epoch_count"))
        samples = self._submission.train_samples
        if first is None or not count:
            self._submission.note("block", "a block without first_epoch_num and epoch_count")
            return
        if self._first_number is None and samples > 1 and first == samples and count % samples == 0:
            self._epoch_size = samples  # the first epoch's number is that of an epoch's samples
        first, count = first / self._epoch_size, count / self._epoch_size
        if count > MAX_EPOCHS:
            self._submission.note("block", f"epoch_count {count:,.15g} of a block")
            return
        self._first_number = first if self._first_number is None else self._first_number
        if len(self._blocks) >= MAX_OPEN_BLOCKS:
            self._blocks.pop(next(iter(self._blocks)))
        self._blocks[first] = Block(count, first - self._first_number + count, clock_sec, self._num_start_lines)
        self._num_begun = max(self._num_begun, self._num_finished + count)

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
        self._first_number = number if self._first_number is None else self._first_number
        return number / self._epoch_size + (self._first_number == 0) if number.is_integer() else None

    def _windows(
        self, epochs: float, parts: int, seconds: float, number: int, time_ms: int, clock_sec: float
    ) -> list[Record]:
        """The last `epochs` epochs as `parts` windows of equal length."""
        samples = self._submission.epoch_samples()
        before, self._trained_samples = self._trained_samples, self._trained_samples + round(epochs * samples)
        if not samples or seconds <= 0:
            return []
        total, records = self._trained_samples - before, []
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
