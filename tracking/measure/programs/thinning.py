"""Thin out a metric that a program prints a million times to some ten thousand records.

The first `VALUES_PER_RATE` values of each metric are journaled, then every second, then every fourth, and so on. Two
others are journaled too: the first evaluation that reaches the target, and the best so far. The best one is held back
until another record is journaled, since a metric may also improve a million times. After a gap, an evaluation states
its number (`eval_num`, from 1), so that the clock can count evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from conf.metric import HIGHER
from conf.target import Target, better
from tracking.record import Record, attempts

MAX_NAMES = 1_000  # different metrics and events; MLflow's pages slow down at some hundreds
VALUES_PER_RATE = 1_000  # values journaled at each rate before the rate is halved


class Thinning:
    """Decides which records of a program are journaled. `num_skipped` counts the others."""

    def __init__(self, targets: Mapping[str, Target], directions: Mapping[str, str]) -> None:
        self._targets = targets
        self._directions = directions
        self._counts: dict[str, int] = {}
        self._num_admitted: dict[str, int] = {}
        self._best: dict[str, float] = {}
        self._held_back: dict[str, list[Record]] = {}  # the best evaluation by metric, if it is not journaled yet
        self._reached = False
        self.num_skipped = 0

    def admit(self, records: Sequence[Record]) -> list[Record]:
        """The records to journal after a line: those held back, then the line's own; [] if the line is skipped."""
        if not records:
            return []
        first = records[0]
        name = " ".join([first.key, *sorted(first.values.get("metrics", () if first.key else first.values))])
        if name not in self._counts and len(self._counts) >= MAX_NAMES and not self._has_target(first):
            self.num_skipped += 1
            return []
        number = self._counts[name] = self._counts.get(name, 0) + 1
        num_admitted = self._num_admitted.get(name, 0)
        improves = self._improves(first)
        if first.key == "eval_accuracy" and number > num_admitted + 1:
            records = [replace(first, values={**first.values, "eval_num": number}), *records[1:]]
        if self._reaches(first) or (number - 1) % 2 ** (num_admitted // VALUES_PER_RATE) == 0:
            self._num_admitted[name] = num_admitted + 1
            return [*self.flush(), *records]
        self.num_skipped += 1
        if improves:
            self._held_back.pop(name, None)  # keeps the order of time
            self._held_back[name] = list(records)
        return []

    def flush(self) -> list[Record]:
        """The best evaluations that were held back, to journal now."""
        held_back, self._held_back = self._held_back, {}
        self.num_skipped -= len(held_back)
        return [record for records in held_back.values() for record in records]

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
