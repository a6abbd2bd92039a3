"""Which settings and stacks may be the best, also where runs miss the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tracking.analysis.compare import best, best_of, best_stacks, compare
from tracking.analysis.compare.comparisons import factor_bounds
from tracking.analysis.compare.grouping import Setting, Task
from tracking.analysis.statistics import Times

TIME = "time/to_accuracy_sec"


@dataclass(frozen=True)
class Known(Setting):
    """A setting with known times, without runs."""

    known: Times = field(kw_only=True)

    def measured(self, key: str) -> Times:
        return self.known


def of(times: Mapping[str, Times | Sequence[float]]) -> Task:
    settings = [
        Known({"stack.name": name}, [], 3, known=known if isinstance(known, Times) else Times(known))
        for name, known in times.items()
    ]
    return Task("vgg", settings)


def names(settings: Sequence[Setting]) -> list[str]:
    return [setting.labels["stack.name"] for setting in settings]


def test_the_best_stack_is_the_best_setting_where_runs_miss_the_target() -> None:
    """Whether a or b is sooner is not sure. c is sooner than a, whatever the missed run's time would have been."""
    task = of({"a": Times([17, 15], [30]), "b": Times([17, 8], [10]), "c": Times([15, 16, 14])})
    leads = best(task, TIME)
    (stack,) = best_stacks(task, TIME, compare(task, TIME))
    assert leads is not None
    assert (leads.labels["stack.name"], stack.best.leader) == ("c", leads)


def test_the_best_are_those_that_no_other_is_told_to_be_better_than() -> None:
    task = of({"a": [100, 101, 102], "b": [101, 102, 103], "c": [150, 151, 152], "d": [200, 202, 201]})
    top = best_of(task.settings, compare(task, TIME), TIME)
    assert top is not None
    assert (names(top.candidates), names([top.leader]), names(top.tied)) == (["a", "b"], ["a"], ["b"])
    assert top.next is not None
    assert top.next.worse.labels["stack.name"] == "b"
    assert top.p is not None
    assert top.p == pytest.approx(min(1.0, 3 * (top.next.p or 0)))  # three comparisons with the best of four
    assert top.bounds is not None
    low, high = top.bounds
    assert low < 1 < top.next.factor < high


def test_a_best_one_that_all_others_are_behind_is_alone_and_leads_by_more_than_one() -> None:
    task = of({"a": [150, 151, 152], "b": [100, 101, 102], "c": [200, 201, 202]})
    top = best_of(task.settings, compare(task, TIME), TIME)
    assert top is not None
    assert names(top.candidates) == ["b"]
    assert top.p is not None
    assert top.p < 0.05
    assert top.bounds is not None
    assert 1 < top.bounds[0] < 151 / 101 < top.bounds[1]


def test_the_interval_of_the_lead_is_that_of_its_factor_over_the_next() -> None:
    """The third one is further behind, and its runs spread less."""
    task = of({"a": [100, 101, 102], "b": [90, 110, 133], "c": [113, 113.5, 114]})
    top = best_of(task.settings, compare(task, TIME), TIME)
    assert top is not None
    assert top.next is not None
    assert (names([top.leader]), names([top.next.worse])) == (["a"], ["b"])
    over = [factor_bounds(top.leader, other, TIME, top.level) for other in task.settings[1:]]
    assert top.bounds == over[0]
    assert over[0] is not None
    assert over[1] is not None
    assert over[1][1] < over[0][1]


def test_a_stack_of_one_run_may_be_the_best_and_cannot_be_told_to_be_it() -> None:
    task = of({"a": [100.0, 101.0, 102.0], "b": [500.0]})
    top = best_of(task.settings, compare(task, TIME), TIME)
    assert top is not None
    assert names(top.candidates) == ["a", "b"]
    assert (top.p, top.bounds, top.num_tested) == (None, None, 1)


def test_stacks_that_fall_on_neighbouring_evaluations_are_not_told_apart() -> None:
    """Two seeds each, at five and six intervals of 10 s: a coin falls so in one of eight cases."""
    task = of({"a": Times([50.0, 50.1], interval=10.0), "b": Times([60.0, 60.1], interval=10.0)})
    (stack,) = best_stacks(task, TIME, compare(task, TIME))
    assert names(stack.best.tied) == ["b"]
    assert stack.best.bounds is not None
    assert stack.best.bounds[0] < 1 < stack.best.bounds[1]
    apart = of({"a": Times([50.0] * 5, interval=10.0), "b": Times([70.0] * 5, interval=10.0)})
    (stack,) = best_stacks(apart, TIME, compare(apart, TIME))
    assert not stack.best.tied
