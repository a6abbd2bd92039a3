"""Tests of two means: against SciPy, published examples, and simulated runs whose truth is known."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.analysis.statistics.t_tests import floored_variance, paired_t_test, separate_variances_p, t_test

positive = st.lists(st.integers(1, 10_000).map(float), min_size=2, max_size=8)
# Student's sleep data, R's documentation of t.test: extra ~ group, Welch's p-value 0.07939.
SLEEP = ([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def test_for_as_many_values_a_side_the_statistic_is_the_published_one() -> None:
    """R's data of sleep: t = -1.8608 of 10 values a side; by the degrees of freedom of one side, 9."""
    assert t_test(*SLEEP) == pytest.approx(2 * stats.t.cdf(-1.8608, 9), abs=5e-6)
    assert t_test(*SLEEP, "less") == pytest.approx(stats.t.cdf(-1.8608, 9), abs=5e-6)
    assert t_test(*SLEEP, "greater") == pytest.approx(stats.t.sf(-1.8608, 9), abs=5e-6)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(1, 40), st.integers(1, 40), st.floats(0.01, 50))
def test_the_p_value_is_where_the_critical_values_make_the_distance(
    a: float, b: float, f: int, g: int, score: float
) -> None:
    distance = score * math.sqrt(a + b)
    p = separate_variances_p(distance, (a, f), (b, g))
    again = math.sqrt(a * stats.t.isf(p / 2, f) ** 2 + b * stats.t.isf(p / 2, g) ** 2)
    assert again == pytest.approx(distance, rel=1e-6)
    ends = sorted(float(2 * stats.t.sf(score, freedom)) for freedom in (f, g))
    assert ends[0] * (1 - 1e-9) <= p <= ends[1] * (1 + 1e-9)


@given(positive, st.integers(1, 6))
def test_no_side_scatters_less_than_a_coin_between_two_evaluations(values: list[float], interval: int) -> None:
    n = len(values)
    assert floored_variance(values, 0.0) == statistics.variance(values)
    assert floored_variance([7.0] * n, interval) == pytest.approx((interval / 2) ** 2 * n / (n - 1))
    half = [0.0, float(interval)] * n
    assert floored_variance(half, interval) == pytest.approx(statistics.variance(half))


def test_more_runs_of_a_side_tell_no_less() -> None:
    """At three standard deviations. By the smaller side's degrees of freedom alone 2 and 5 tell less than 2 and 2."""
    random = np.random.default_rng(1)
    draws = random.normal(0, 1, (1000, 2)) + 3, random.normal(0, 1, (1000, 20))
    told = [
        np.mean([(t_test(list(few), list(many[:m])) or 0) < 0.05 for few, many in zip(*draws, strict=True)])
        for m in (2, 3, 5, 20)
    ]
    assert told[0] < 0.09
    assert sorted(told) == told
    assert told[-1] > 0.2


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 20), (3, 10), (5, 20)])
@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
def test_equal_means_are_told_apart_no_more_often_than_promised(n: int, m: int, spread: float) -> None:
    """Welch's own test errs in 11 % at 2 against 20."""
    random = np.random.default_rng(1)
    trials = 1000
    errors = sum(
        (t_test(list(random.normal(100, 10 * spread, n)), list(random.normal(100, 10, m))) or 0) < 0.05
        for _ in range(trials)
    )
    assert errors / trials < 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5


def test_values_that_fall_on_evaluations_scatter_at_least_as_a_coin_between_two_does() -> None:
    """Epochs 5, 5 and 6, 6 come of a coin that falls either way in one of eight cases."""
    assert t_test([5.0, 5.0], [6.0, 6.0]) == 0.0
    assert (t_test([5.0, 5.0], [6.0, 6.0], intervals=(1.0, 1.0)) or 0) > 0.3
    assert (t_test([5.0] * 3, [6.0] * 3, intervals=(1.0, 1.0)) or 0) > 0.05
    assert (t_test([5.0] * 5, [7.0] * 5, intervals=(1.0, 1.0)) or 1) < 0.05
    assert t_test([5.0, 5.0], [6.0, 6.0], intervals=(1e-9, 1e-9)) == pytest.approx(0.0, abs=1e-6)


def test_pairs_share_what_scatters_in_both() -> None:
    first, second = [10.0, 20.0, 30.0, 40.0], [11.0, 21.2, 30.9, 41.0]
    assert paired_t_test(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert paired_t_test(first, second, "less") == pytest.approx(
        stats.ttest_rel(first, second, alternative="less").pvalue
    )
    assert (t_test(first, second) or 0) > 0.8
    assert (paired_t_test(first, second, intervals=(10.0, 10.0)) or 0) > 0.5  # an interval is a floor here, too
    assert paired_t_test([1.0, 2.0], [2.0, 3.0]) == 0.0
    assert paired_t_test([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert paired_t_test([1.0], [2.0]) is None
    with pytest.raises(ValueError, match="argument 2"):
        paired_t_test([1.0, 2.0], [1.0])


def test_what_is_no_number_is_left_out() -> None:
    nan = float("nan")
    assert t_test([1.0, 2.0, nan], [5.0, 6.0, float("inf")]) == t_test([1.0, 2.0], [5.0, 6.0])
    assert t_test([1.0, nan], [5.0, 6.0]) is None


def test_values_without_spread_are_told_apart_where_they_differ() -> None:
    assert t_test([1.0], [2.0, 3.0]) is None
    assert t_test([1.0, 2.0], [3.0]) is None
    assert t_test([], [1.0, 2.0]) is None
    assert t_test([2.0, 2.0], [2.0, 2.0]) == 1.0
    assert t_test([0.3, 0.3], [0.1 + 0.2, 0.1 + 0.2]) == 1.0
    assert t_test([2.0, 2.0], [3.0, 3.0]) == t_test([2.0, 2.0], [3.0, 3.0], "less") == 0.0
    assert t_test([2.0, 2.0], [3.0, 3.0], "greater") == 1.0
    assert 0 < (t_test([2.0, 2.0], [3.0, 3.5]) or 0) < 1  # one side that scatters is a spread


@given(positive, positive)
def test_it_is_symmetric(first: list[float], second: list[float]) -> None:
    p = t_test(first, second)
    assert p is not None
    assert 0 <= p <= 1
    assert t_test(second, first) == pytest.approx(p, abs=1e-12)
    assert t_test(first, second, "less") == pytest.approx(t_test(second, first, "greater"), abs=1e-12)
