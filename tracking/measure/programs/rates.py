"""Counts from a program's lines: samples, as windows of throughput; steps; and the interval between evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracking.record import Record

MIN_WINDOW_SEC = 0.5  # the time at which a line is read is uncertain by some milliseconds
TOLERANCE = 0.05  # the share by which a program's intervals may differ: an epoch may not be a multiple of them


def window(
    samples: int, seconds: float, epoch: int, step: int, time_ms: int, clock_sec: float, tokens: int = 0
) -> Record:
    values = {"step": step, "epoch_num": epoch, "samples": samples, "rank_ms": [round(1e3 * seconds, 4)]}
    values |= {"tokens": tokens} if tokens else {}
    return Record("event", time_ms, clock_sec, key="throughput_window", values=values)


class SampleCounts:
    """Windows from lines that count the samples trained so far, in all or within the epoch.

    An evaluation ends the window that it falls into. `latest` counts the samples of all epochs; None before the first
    line.
    """

    def __init__(self, tokens_per_sample: float = 0.0) -> None:
        self.latest: int | None = None
        self._tokens_per_sample = tokens_per_sample
        self._last_count = 0
        self._in_earlier_epochs = 0  # samples of earlier epochs, if the program counts each epoch from 0
        self._window_start: tuple[int, float] | None = None

    def begin(self, clock_sec: float) -> None:
        """Start the training, with 0 samples."""
        self._window_start = (0, clock_sec)

    def pause(self) -> None:
        """Interrupt the training: the next line only opens a window."""
        self._window_start = None

    def count(self, samples: int, time_ms: int, clock_sec: float, epoch: int) -> list[Record]:
        self._in_earlier_epochs += self._last_count if samples < self._last_count else 0
        self._last_count, self.latest = samples, self._in_earlier_epochs + samples
        start = self._window_start
        if start is None or samples < start[0]:
            self._window_start = (samples, clock_sec)
            return []
        if clock_sec - start[1] < MIN_WINDOW_SEC or samples == start[0]:
            return []
        self._window_start = (samples, clock_sec)
        num_samples = samples - start[0]
        tokens = round(num_samples * self._tokens_per_sample)
        return [window(num_samples, clock_sec - start[1], epoch, self.latest, time_ms, clock_sec, tokens)]


class StepCounts:
    """Steps of the whole training, from the steps that a program prints.

    A program may count each epoch's steps anew. A step at or below the first one printed shows that. Any other step
    below the last one comes from another rank. `latest` is None before the first step.
    """

    def __init__(self) -> None:
        self.latest: int | None = None
        self._last_count = 0
        self._in_earlier_epochs = 0  # steps of earlier epochs, as far as they were printed
        self._first: int | None = None

    def count(self, step: int) -> int:
        """The step's number in the whole training."""
        self._first = step if self._first is None else self._first
        self._in_earlier_epochs += self._last_count if step < self._last_count and step <= self._first else 0
        self._last_count, self.latest = step, self._in_earlier_epochs + step
        return self.latest

    def with_global_step(self, record: Record) -> Record:
        """A record of a program's journal with its step in the whole training. Step 0 also means no step."""
        if record.kind == "metrics" and record.step:
            return replace(record, step=self.count(record.step))
        if record.values.get("step"):
            return replace(record, values={**record.values, "step": self.count(record.values["step"])})
        return record


class EvaluationInterval:
    """A program's evaluation interval in samples, from its first two evaluations."""

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._by_epochs = False  # evaluations after epochs of unknown size

    def note(self, progress: Mapping[str, Any], epoch_samples: int) -> None:
        """Note an evaluation's `samples_count`, or its `epoch_num` in epochs of `epoch_samples` (0: not known)."""
        epochs = progress.get("epoch_num", 0)
        samples = progress.get("samples_count", 0) or epochs * epoch_samples
        if not self._samples and not epoch_samples and epochs and float(epochs).is_integer():
            self._by_epochs = True  # a count from the program's output may be older than the evaluation
        if not self._by_epochs and len(self._samples) < 2 and samples > max([0.0, *self._samples]):
            self._samples.append(samples)

    def params(self, epoch_samples: int) -> dict[str, int]:
        """The params of the interval, as in our own runs' settings; {} if each epoch is evaluated."""
        if not self._samples:
            return {}
        first, interval = self._samples[0], self._samples[-1] - (self._samples[0] if self._samples[1:] else 0)
        if abs(first - interval) <= TOLERANCE * interval:
            interval = first
        values = (
            {} if abs(interval - epoch_samples) <= TOLERANCE * interval else {"eval_interval_samples": round(interval)}
        )
        return values | ({"eval_after_samples": round(first)} if first > (1 + TOLERANCE) * interval else {})
