"""A metric that is said a million times is journaled some ten thousand times.

Of each metric the first `EACH` values are kept, of the next ones every second, of the next ones every fourth, and so
on. An evaluation that is better than all before it is kept in any case, so that none is lost that reaches a target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from conf.target import Target
from tracking.run import Record, evaluations

EACH = 1_000  # values that are kept until only half as many of those that follow are


class Thinning:
    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets
        self._said: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._best: dict[str, float] = {}
        self.left_out = 0

    def kept(self, records: Sequence[Record]) -> list[Record]:
        """The records of one line where they are to be kept, else none of them."""
        if not records:
            return []
        first = records[0]
        name = first.key or " ".join(sorted(first.values))
        said = self._said[name] = self._said.get(name, 0) + 1
        kept = self._kept.get(name, 0)
        if self._improves(first) or (said - 1) % 2 ** (kept // EACH) == 0:
            self._kept[name] = kept + 1
            return list(records)
        self.left_out += 1
        return []

    def _improves(self, record: Record) -> bool:
        """Whether it is an evaluation that is better than all before it, in any of its metrics."""
        better = False
        for name, value in record.values.get("metrics", {}).items() if record.key == "eval_accuracy" else ():
            sign = 1 if evaluations.higher_is_better(name, self._targets) else -1
            if not math.isnan(value) and sign * value > self._best.get(name, -math.inf):
                self._best[name], better = sign * value, True
        return better
