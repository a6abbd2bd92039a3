"""Which of two settings gets to its target more often, where runs missed it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.analysis.statistics import Times
from tracking.analysis.statistics.more_often import Counts, counts, often

number = st.integers(0, 12)


@given(number, st.integers(1, 12), number, st.integers(1, 12))
def test_it_is_fishers_exact_test(reached: int, missed: int, other_reached: int, other_missed: int) -> None:
    shares = Counts(reached, reached + missed, other_reached, other_reached + other_missed)
    table = [[reached, missed], [other_reached, other_missed]]
    assert shares.p == pytest.approx(stats.fisher_exact(table, "greater").pvalue)


def test_a_setting_that_misses_now_and_then_is_told_from_one_that_never_gets_there() -> None:
    """By their means this has p = 0.27: nobody knows how late the four runs would have been."""
    more, less = Times([60.0 + place for place in range(16)], [108.0] * 4), Times([], [108.0] * 20)
    verdict = often(more, less)
    assert verdict is not None
    assert (verdict.first, verdict.counts) == (True, Counts(16, 20, 0, 20, 108.0))
    assert verdict.p < 1e-5
    turned = often(less, more)
    assert turned is not None
    assert (turned.first, turned.p) == (False, verdict.p)


def test_it_is_compared_at_the_budget_that_both_had() -> None:
    """Ten of ten within 50 s, and none of ten: told apart with the bigger budget, undecided with the smaller one."""
    good = Times([41.0 + place for place in range(10)])
    bigger, smaller = often(good, Times([], [100.0] * 10)), often(good, Times([], [30.0] * 10))
    assert bigger is not None
    assert smaller is not None
    assert bigger.counts == Counts(10, 10, 0, 10, 100.0)
    assert bigger.p < 1e-4
    assert (smaller.counts.reached, smaller.counts.other_reached, smaller.p) == (0, 0, 1.0)
    later = Times([*good.reached, 190.0], [200.0] * 5)
    assert counts(later, Times([20.0], [100.0])) == Counts(10, 16, 1, 2, 100.0)


def test_a_run_that_was_stopped_early_is_unknown_and_ruins_no_count() -> None:
    good, none = Times([41.0 + place for place in range(10)]), Times([], [100.0] * 9, [1.0])
    assert counts(good, none) == Counts(10, 10, 0, 9, 100.0)
    assert counts(good, Times([], [100.0] * 9, [100.0])) == Counts(10, 10, 0, 10, 100.0)  # it had as much room
    assert counts(good, Times([], [0.0, 100.0, 100.0])) == Counts(10, 10, 0, 2, 100.0)  # nobody knows when
    assert counts(good, Times([50.0], (), [1.0], num_diverged=3)) == Counts(10, 10, 1, 4)  # these never arrive
    assert often(good, Times([], (), [1.0] * 9)) is None


def test_settings_that_reach_it_as_often_are_told_apart_in_no_more_than_five_per_cent() -> None:
    """Both cut at their mean, with spreads of 50 and 10: half of each side's runs miss. See benchmarks/reports."""
    random, told, trials = np.random.default_rng(3), 0, 300
    for _ in range(trials):
        sides = [random.normal(100, spread, 10) for spread in (50, 10)]
        first, second = (Times(side[side <= 100].tolist(), [100.0] * int((side > 100).sum())) for side in sides)
        verdict = often(first, second)
        told += verdict is not None and verdict.p < 0.05
    assert told / trials < 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


def test_one_run_a_side_and_runs_that_all_get_there_are_not_compared() -> None:
    assert often(Times([1.0]), Times([], [2.0] * 5)) is None
    assert often(Times([1.0, 2.0]), Times([3.0, 4.0])) is None
