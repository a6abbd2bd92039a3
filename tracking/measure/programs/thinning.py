"""A metric that is said a million times is journaled some ten thousand times.

The first `EACH` values of each metric are kept, then every second, then every fourth, and so on. Two of those between
are not lost: the first evaluation that reaches the target, and the best so far, which waits until something else is
kept, since a metric may get better a million times, too. An evaluation behind one that was left out says which one it
is (`eval_num`, counted from 1), so that the clock can count them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from conf.metric import HIGHER
from conf.target import Target, better
from tracking.record import Record, attempts

MOST_NAMES = 1_000  # of what a program may say; MLflow's pages slow down at some hundreds
EACH = 1_000  # values that are kept until only half as many of those that follow are


class Thinning:
    def __init__(self, targets: Mapping[str, Target], directions: Mapping[str, str]) -> None:
        self._targets = targets
        self._directions = directions
        self._said: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._best: dict[str, float] = {}
        self._waiting: dict[str, list[Record]] = {}  # by metric, the best evaluation, where it was not kept
        self._reached = False
        self.left_out = 0

    def kept(self, records: Sequence[Record]) -> list[Record]:
        """The records of one line where they are to be kept, behind those that waited for them, else none of them."""
        if not records:
            return []
        first = records[0]
        name = " ".join([first.key, *sorted(first.values.get("metrics", () if first.key else first.values))])
        if name not in self._said and len(self._said) >= MOST_NAMES and not self._has_target(first):
            self.left_out += 1
            return []
        said = self._said[name] = self._said.get(name, 0) + 1
        kept = self._kept.get(name, 0)
        improves = self._improves(first)
        if first.key == "eval_accuracy" and said > kept + 1:
            records = [replace(first, values={**first.values, "eval_num": said}), *records[1:]]
        if self._reaches(first) or (said - 1) % 2 ** (kept // EACH) == 0:
            self._kept[name] = kept + 1
            return [*self.rest(), *records]
        self.left_out += 1
        if improves:
            self._waiting.pop(name, None)  # They stay in the order of their times.
            self._waiting[name] = list(records)
        return []

    def rest(self) -> list[Record]:
        """The best evaluations that still wait; at the end they are to be kept."""
        waiting, self._waiting = self._waiting, {}
        self.left_out -= len(waiting)
        return [record for records in waiting.values() for record in records]

    def _has_target(self, record: Record) -> bool:
        return not self._targets.keys().isdisjoint(record.values.get("metrics", ()))

    def _reaches(self, record: Record) -> bool:
        """Whether it is the first evaluation that reaches the target."""
        if self._reached or record.key != "eval_accuracy":
            return False
        self._reached = attempts.reached(record.values["metrics"], self._targets)
        return self._reached

    def _improves(self, record: Record) -> bool:
        """Whether it is an evaluation that is better than all before it, in any metric with a known direction."""
        improves = False
        for name, value in record.values.get("metrics", {}).items() if record.key == "eval_accuracy" else ():
            way = better(self._targets[name]) if name in self._targets else self._directions.get(name)
            sign = 1 if way == HIGHER else -1
            if way and not math.isnan(value) and sign * value > self._best.get(name, -math.inf):
                self._best[name], improves = sign * value, True
        return improves
