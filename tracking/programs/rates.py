"""Windows of throughput from what a program says of its samples. A window never holds an evaluation."""

from __future__ import annotations

from typing import Any

from tracking.programs.mlperf_lines import Entry
from tracking.run import Record

LEAST_SEC = 0.5  # a window's: the time at which a line is read is uncertain by some milliseconds


def window(samples: int, seconds: float, epoch: int, step: int, time_ms: int, clock_sec: float) -> Record:
    values = {"step": step, "epoch_num": epoch, "samples": samples, "rank_ms": [round(1e3 * seconds, 4)]}
    return Record("event", time_ms, clock_sec, key="throughput_window", values=values)


class SampleCounts:
    """From lines that say how many samples were trained so far, in all or of the epoch; an evaluation ends the window
    that it falls into. `said` are those of all epochs, as far as they were said; None before the first line."""

    def __init__(self) -> None:
        self.said: int | None = None
        self._before = self._last = 0  # samples of earlier epochs where a program counts those of each epoch
        self._since: tuple[int, float] | None = None
        self._windows = 0

    def begin(self, clock_sec: float) -> None:
        """The training starts, with no sample trained."""
        self._since = (0, clock_sec)

    def pause(self) -> None:
        """Something else than training takes place: the next line only opens a window."""
        self._since = None

    def counted(self, samples: int, time_ms: int, clock_sec: float, epoch: int) -> list[Record]:
        self._before += self._last if samples < self._last else 0
        self._last, self.said = samples, self._before + samples
        since = self._since
        if since is None or samples < since[0]:
            self._since = (samples, clock_sec)
            return []
        if clock_sec - since[1] < LEAST_SEC or samples == since[0]:
            return []
        self._since = (samples, clock_sec)
        self._windows += 1
        return [window(samples - since[0], clock_sec - since[1], epoch, self.said, time_ms, clock_sec)]


class Epochs:
    """Epochs of MLPerf's log as windows, each of `samples`; a block of several epochs is divided evenly.

    Epochs that a log counts from 0 are counted from 1, as ours are.
    """

    def __init__(self) -> None:
        self.samples = 0  # an epoch's samples, where the log says them
        self._shift: int | None = None
        self._since: float | None = None  # when the epoch began
        self._paused = 0.0  # seconds of it in which was evaluated
        self._pause: float | None = None
        self._seen_epochs = False
        self._block: tuple[int, int, float] | None = None  # first epoch, number of epochs, start
        self.trained = 0

    def number(self, value: Any) -> int | None:
        """The epoch's number, counted from 1; None where the log says none."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
            return None
        if self._shift is None:
            self._shift = 1 if value < 1 else 0
        return int(value) + self._shift if float(value).is_integer() else None

    def edge(self, record: Record) -> list[Record]:
        """The window that ends with this edge of an epoch or an evaluation, if one does; it stands before the edge."""
        if record.key == "epoch_start":
            self._seen_epochs, self._since, self._paused = True, record.clock_sec, 0.0
        elif record.key == "eval_start":
            self._pause = record.clock_sec
        elif record.key == "eval_stop" and self._pause is not None:
            # It may have begun before the epoch did, as in logs of evaluations that take place beside the training.
            self._paused += record.clock_sec - max(self._pause, self._since or self._pause)
        elif record.key == "epoch_stop" and self._since is not None:
            seconds, self._since = record.clock_sec - self._since - self._paused, None
            return self._trained(seconds, record.values.get("epoch_num"), record.time_ms, record.clock_sec)
        return []

    def block(self, entry: Entry, time_ms: int, clock_sec: float) -> list[Record]:
        """At the end of a block whose epochs the log does not tell apart: its epochs, all of one length."""
        if entry.key == "block_start":
            first, count = self.number(entry.metadata.get("first_epoch_num")), entry.metadata.get("epoch_count")
            known = first is not None and isinstance(count, int) and 0 < count < 10_000
            self._block = (first or 0, int(count or 0), clock_sec) if known else None
            self._seen_epochs = False
            return []
        if self._block is None or self._seen_epochs:
            return []
        (first, count, start), self._block = self._block, None
        seconds, records = (clock_sec - start) / count, []
        for index in range(count):
            edges = [start + (index + part) * seconds for part in (0, 1)]
            times = [time_ms - round(1e3 * (clock_sec - edge)) for edge in edges]
            number = {"epoch_num": first + index}
            records.append(Record("event", times[0], edges[0], key="epoch_start", values=number))
            records += self._trained(seconds, first + index, times[1], edges[1])
            records.append(Record("event", times[1], edges[1], key="epoch_stop", values=number))
        return records

    def _trained(self, seconds: float, number: int | None, time_ms: int, clock_sec: float) -> list[Record]:
        self.trained += self.samples
        if not self.samples or seconds <= 0:
            return []
        return [window(self.samples, seconds, number or 0, self.trained, time_ms, clock_sec)]
