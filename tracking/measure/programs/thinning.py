"""Thin out a metric that a program prints a million times to some ten thousand records.

The first `EACH` values of each metric are kept, then every second, then every fourth, and so on. Two others are kept
too: the first evaluation that reaches the target, and the best so far. The best one waits until another record is kept,
since a metric may also improve a million times. After a gap, an evaluation states its number (`eval_num`, from 1), so
that the clock can count evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from conf.metric import HIGHER
from conf.target import Target, better
from tracking.record import Record, attempts

MAX_NAMES = 1_000  # different metrics and events; MLflow's pages slow down at some hundreds
EACH = 1_000  # values kept at each rate before the rate is halved


class Thinning:
    """Decides which records of a program are journaled. `left_out` counts the others."""

    def __init__(self, targets: Mapping[str, Target], directions: Mapping[str, str]) -> None:
        self._targets = targets
        self._directions = directions
        self._counts: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._best: dict[str, float] = {}
        self._waiting: dict[str, list[Record]] = {}  # by metric, the best evaluation if it was not kept
        self._reached = False
        self.left_out = 0

    def kept(self, records: Sequence[Record]) -> list[Record]:
        """One line's records if they are to be kept, after the waiting ones; else []."""
        if not records:
            return []
        first = records[0]
        name = " ".join([first.key, *sorted(first.values.get("metrics", () if first.key else first.values))])
        if name not in self._counts and len(self._counts) >= MAX_NAMES and not self._has_target(first):
            self.left_out += 1
            return []
        number = self._counts[name] = self._counts.get(name, 0) + 1
        kept = self._kept.get(name, 0)
        improves = self._improves(first)
        if first.key == "eval_accuracy" and number > kept + 1:
            records = [replace(first, values={**first.values, "eval_num": number}), *records[1:]]
        if self._reaches(first) or (number - 1) % 2 ** (kept // EACH) == 0:
            self._kept[name] = kept + 1
            return [*self.rest(), *records]
        self.left_out += 1
        if improves:
            self._waiting.pop(name, None)  # so that they stay in order of time
            self._waiting[name] = list(records)
        return []

    def rest(self) -> list[Record]:
        """The best evaluations that still wait; they are to be kept at the end."""
        waiting, self._waiting = self._waiting, {}
        self.left_out -= len(waiting)
        return [record for records in waiting.values() for record in records]

    def _has_target(self, record: Record) -> bool:
        return not self._targets.keys().isdisjoint(record.values.get("metrics", ()))

    def _reaches(self, record: Record) -> bool:
        """Whether the record is the first evaluation that reaches the target."""
        if self._reached or record.key != "eval_accuracy":
            return False
        self._reached = attempts.reached(record.values["metrics"], self._targets)
        return self._reached

    def _improves(self, record: Record) -> bool:
        """Whether the record is an evaluation with a new best value in any metric with a known direction."""
        improves = False
        for name, value in record.values.get("metrics", {}).items() if record.key == "eval_accuracy" else ():
            direction = better(self._targets[name]) if name in self._targets else self._directions.get(name)
            sign = 1 if direction == HIGHER else -1
            if direction and not math.isnan(value) and sign * value > self._best.get(name, -math.inf):
                self._best[name], improves = sign * value, True
        return improves
