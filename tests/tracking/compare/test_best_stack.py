"""One order for the best setting and the best stack, also where runs miss the target."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracking.compare import estimates
from tracking.compare.best_stack import extremes
from tracking.compare.grouping import Setting, Task
from tracking.statistics import Times

TIME = "time/to_accuracy_sec"


@dataclass(frozen=True)
class Known(Setting):
    """A setting of which the times are known, and not the runs."""

    known: Times = field(kw_only=True)

    def times(self, key: str) -> Times:
        return self.known


def test_the_best_stack_is_the_best_setting_where_runs_miss_the_target() -> None:
    """Of a and b it is not sure which is sooner, and c is sooner than a whatever became of the run that missed."""
    times = {"a": Times([17, 15], [30]), "b": Times([17, 8], [10]), "c": Times([19, 20, 14])}
    settings = [Known({"stack.name": name}, [], 3, known=of_name) for name, of_name in times.items()]
    task = Task("vgg", settings)
    pairs = estimates.compare(task, TIME)
    best = estimates.best(task, TIME)
    (furthest,) = extremes(task, TIME, pairs)
    assert best is not None
    assert (best.name, furthest.pair.better.name, furthest.pair.worse.name) == (*2 * ("stack.name=c",), "stack.name=a")
