"""The ratio of two means: its tests and its interval."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracking.analysis.statistics import Times, exceeds, falls_below, ratio_bounds

positive = st.lists(st.integers(1, 10_000).map(float), min_size=2, max_size=8)


@settings(max_examples=40)
@given(positive, positive, st.floats(0.9, 0.99))
def test_the_bounds_of_a_ratio_are_where_the_tests_turn(a: list[float], b: list[float], confidence: float) -> None:
    bounds = ratio_bounds(Times(a), Times(b), confidence)
    assert bounds is not None
    low, high = bounds
    assert low <= statistics.fmean(a) / statistics.fmean(b) * (1 + 1e-9)
    assert high >= statistics.fmean(a) / statistics.fmean(b) * (1 - 1e-9)
    assume(low < high)
    if low > 0:
        assert exceeds(Times(a), Times(b), low) == pytest.approx(1 - confidence, abs=1e-6)
    if math.isfinite(high):
        assert falls_below(Times(a), Times(b), high) == pytest.approx(1 - confidence, abs=1e-6)


def test_bounds_where_there_is_little_to_go_by() -> None:
    assert ratio_bounds(Times([1.0]), Times([2.0, 3.0])) is None
    assert ratio_bounds(Times([3.0, 3.0]), Times([2.0, 2.0])) == (1.5, 1.5)
    assert ratio_bounds(Times([1.0, 1000.0]), Times([1.0, 1000.0])) == (0.0, math.inf)
    with pytest.raises(ValueError, match="positive"):
        ratio_bounds(Times([1.0, -2.0]), Times([2.0, 3.0]))


def test_a_run_without_the_target_may_have_taken_any_time() -> None:
    """Its setting's mean has no upper bound, however the ranks lie."""
    early, late = Times([10 + 0.1 * number for number in range(8)]), [10.2 + 0.1 * number for number in range(7)]
    for short in (Times(late, missed=[100.0]), Times(late, stopped=[100.0]), Times(late, num_diverged=1)):
        above, below = ratio_bounds(short, early, 0.975), ratio_bounds(early, short, 0.975)
        assert above is not None
        assert below is not None
        assert above[1] == math.inf
        assert below[0] == 0.0
        assert statistics.fmean(short.bounds(Times([100.0]))) / statistics.fmean(early.reached) > above[0]


@pytest.mark.slow
def test_bounds_with_missed_targets_hold_the_true_ratio() -> None:
    """One run in ten takes 100 s and is given up at 50: the ratio of means is 1.9."""
    random, outside = np.random.default_rng(3), 0
    for _ in range(50):
        steady, some = list(random.normal(10, 0.3, 12)), [*random.normal(10, 0.3, 12)]
        number = int(random.binomial(12, 0.1))
        bounds = ratio_bounds(Times(some[number:], missed=[50.0] * number), Times(steady), 0.975)
        assert bounds is not None
        outside += number > 0 and not bounds[0] <= 1.9 <= bounds[1]
    assert outside <= 2


@pytest.mark.slow
def test_the_bounds_hold_the_true_ratio_as_often_as_they_say() -> None:
    random = np.random.default_rng(2)
    outside = [0, 0]
    for _ in range(250):
        bounds = ratio_bounds(Times(list(random.normal(110, 8, 5))), Times(list(random.normal(100, 3, 4))))
        assert bounds is not None
        outside[0] += bounds[0] > 1.1
        outside[1] += bounds[1] < 1.1
    assert all(0.005 < count / 250 < 0.07 for count in outside)


def test_whole_epochs_have_an_interval_too() -> None:
    """No spread at all: the floor is half an epoch for five runs a side, and the bounds hold a neighbouring epoch."""
    bounds = ratio_bounds(Times([5.0] * 5, interval=1.0), Times([5.0] * 5, interval=1.0), 0.975)
    assert bounds is not None
    assert 0.8 < bounds[0] < 0.9
    assert bounds[0] == pytest.approx(1 / bounds[1])


def test_pairs_that_scatter_together_bound_their_ratio_closely() -> None:
    baseline = [100.0, 110.0, 90.0, 130.0]
    candidate = [1.02 * value + place / 10 for place, value in enumerate(baseline)]
    paired = ratio_bounds(Times(candidate), Times(baseline), 0.95, paired=True)
    alone = ratio_bounds(Times(candidate), Times(baseline), 0.95)
    assert paired is not None
    assert alone is not None
    assert paired[1] - paired[0] < 0.01 < 0.2 < alone[1] - alone[0]
