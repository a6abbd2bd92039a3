"""Which of two settings gets to its target more often, where runs missed it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.statistics import Times
from tracking.statistics.more_often import Early, early, often
from tracking.statistics.time_to_event import p_sooner

counts = st.integers(0, 12)


@given(counts, st.integers(1, 12), counts, st.integers(1, 12))
def test_it_is_fishers_exact_test(reached: int, missed: int, other_reached: int, other_missed: int) -> None:
    shares = Early(reached, reached + missed, other_reached, other_reached + other_missed)
    table = [[reached, missed], [other_reached, other_missed]]
    assert shares.p == pytest.approx(stats.fisher_exact(table, "greater").pvalue)


def test_a_setting_that_misses_now_and_then_is_told_from_one_that_never_gets_there() -> None:
    """By their means this has p = 0.27: nobody knows how late the four runs would have been."""
    more, less = Times([60.0 + place for place in range(16)], [108.0] * 4), Times([], [108.0] * 20)
    verdict = often(more, less)
    assert verdict is not None
    assert (verdict.first, verdict.early) == (True, Early(16, 20, 0, 20))
    assert verdict.p < 1e-5
    of_means = p_sooner(more, less)
    assert of_means is not None
    assert 2 * of_means > 0.05
    turned = often(less, more)
    assert turned is not None
    assert (turned.first, turned.p) == (False, verdict.p)


times = st.lists(st.integers(1, 100).map(float), min_size=2, max_size=12)


@given(times, times, times, st.data())
def test_a_miss_never_speaks_for_its_setting(
    first: list[float], second: list[float], limits: list[float], data: st.DataObject
) -> None:
    """Whenever a run is given up, fewer of its setting had got there."""
    missed = Times(second, limits)
    place = data.draw(st.integers(0, len(first) - 1))
    given_up = Times(first[:place] + first[place + 1 :], [data.draw(st.floats(0, first[place]))])
    assert early(given_up, missed).p >= early(Times(first), missed).p


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
