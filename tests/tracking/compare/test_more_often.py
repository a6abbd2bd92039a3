"""Which of two settings gets to its target more often, where runs missed it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.compare import Times, more_often
from tracking.compare.more_often import Early, early, p_better
from tracking.compare.time_to_event import p_sooner

counts = st.integers(0, 12)


@given(counts, st.integers(1, 12), counts, st.integers(1, 12))
def test_it_is_fishers_exact_test(reached: int, missed: int, other_reached: int, other_missed: int) -> None:
    shares = Early(reached, reached + missed, other_reached, other_reached + other_missed)
    table = [[reached, missed], [other_reached, other_missed]]
    assert shares.p == pytest.approx(stats.fisher_exact(table, "greater").pvalue)


@pytest.mark.parametrize(("n", "m", "tells"), [(3, 3, False), (4, 4, False), (5, 5, True), (2, 20, True)])
def test_so_few_runs_that_no_outcome_would_tell_take_none_of_the_error(n: int, m: int, tells: bool) -> None:
    assert Early(n, n, 0, m).can_tell is tells
    better, worse = Times([10.0 + place for place in range(n)]), Times([], [30.0] * m)
    of_means = p_sooner(better, worse)
    assert of_means is not None
    p, _ = p_better(better, worse)
    assert p == (
        pytest.approx(2 * of_means) if not tells else pytest.approx(min(4 * of_means, 4 * Early(n, n, 0, m).p))
    )


def test_a_setting_that_misses_now_and_then_is_told_from_one_that_never_gets_there() -> None:
    """By their means this has p = 0.27: nobody knows how late the four runs would have been."""
    better, worse = Times([60.0 + place for place in range(16)], [108.0] * 4), Times([], [108.0] * 20)
    p, shares = p_better(better, worse)
    assert shares == Early(16, 20, 0, 20)
    assert p is not None
    assert p < 1e-5
    of_means = p_sooner(better, worse)
    assert of_means is not None
    assert 2 * of_means > 0.05


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


def test_equal_settings_are_told_apart_in_no_more_than_five_per_cent() -> None:
    """Both cut at their mean, with spreads of 1 to 5: half of each side's runs miss. See benchmarks/reports."""
    random, told, trials = np.random.default_rng(3), 0, 300
    for _ in range(trials):
        sides = [random.normal(100, spread, 10) for spread in (50, 10)]
        first, second = (Times(side[side <= 100].tolist(), [100.0] * int((side > 100).sum())) for side in sides)
        told += min(p_better(*pair)[0] or 0.0 for pair in ((first, second), (second, first))) < 0.05
    assert told / trials < 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


def test_one_run_a_side_has_no_p_value() -> None:
    assert p_better(Times([1.0]), Times([], [2.0] * 5)) == (None, None)
    assert more_often.LEVEL == 0.05
