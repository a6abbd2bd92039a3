"""Statistics of repeated runs: against SciPy, published examples, and simulated runs whose truth is known."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tracking.statistics.repeats import holm, mean_and_standard_error, olympic_mean, repeats_to_tell, t_test
from tracking.statistics.time_to_event import Times, exceeds, falls_below, ratio_bounds

values = st.floats(-1e6, 1e6)
positive = st.lists(st.integers(1, 10_000).map(float), min_size=2, max_size=8)
# Student's sleep data, R's documentation of t.test: extra ~ group, Welch's p-value 0.07939.
SLEEP = ([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


@given(st.lists(values, min_size=2, max_size=30))
def test_agrees_with_scipy(values: list[float]) -> None:
    mean, error = mean_and_standard_error(values)
    assert mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert error == pytest.approx(stats.sem(values), abs=1e-6)


def test_one_value_has_no_spread_and_none_is_an_error() -> None:
    assert mean_and_standard_error([3.0]) == (3.0, None)
    with pytest.raises(ValueError, match="no values"):
        mean_and_standard_error([])


def test_the_olympic_mean_drops_one_at_either_end() -> None:
    assert olympic_mean([100.0, 12.0, 11.0, 13.0, 1.0]) == 12.0
    assert olympic_mean([3.0, 1.0, 1.0]) == 1.0  # one of two equal ones
    with pytest.raises(ValueError, match="three values"):
        olympic_mean([1.0, 2.0])


def test_the_olympic_mean_drops_as_many_as_are_asked_for() -> None:
    assert olympic_mean([math.inf, 1.0, 2.0, 9.0, 3.0, 4.0], dropped=2) == 3.5
    with pytest.raises(ValueError, match="5 values"):
        olympic_mean([1.0, 2.0, 3.0, 4.0], dropped=2)


@given(st.lists(values, min_size=3, max_size=20), values)
def test_an_olympic_mean_does_not_see_how_far_the_extremes_are(some: list[float], far: float) -> None:
    mean = olympic_mean(some)
    assert min(some) <= mean + 1e-6
    assert mean - 1e-6 <= max(some)
    further = sorted(some)
    further[-1] = max(further[-1], abs(far) * 10)
    assert olympic_mean(further) == pytest.approx(mean, abs=1e-6)
    assert mean == pytest.approx(stats.trim_mean(some, 1.000001 / len(some)), abs=1e-6)


def test_for_as_many_values_a_side_the_statistic_is_the_published_one() -> None:
    """R's data of sleep: t = -1.8608 of 10 values a side; by the degrees of freedom of one side, 9."""
    assert t_test(*SLEEP) == pytest.approx(2 * stats.t.cdf(-1.8608, 9), abs=5e-6)
    assert t_test(*SLEEP, "less") == pytest.approx(stats.t.cdf(-1.8608, 9), abs=5e-6)
    assert t_test(*SLEEP, "greater") == pytest.approx(stats.t.sf(-1.8608, 9), abs=5e-6)


def test_the_larger_standard_error_counts() -> None:
    tight, wide = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0, 10.0], [14.0, 6.0, 17.0]
    for first, second, pooled in ((tight, wide, False), (tight, [9.0, 9.1, 9.0], False), (wide, tight, False)):
        score = stats.ttest_ind(first, second, equal_var=pooled).statistic
        other = stats.ttest_ind(first, second, equal_var=not pooled).statistic
        assert t_test(first, second) == pytest.approx(2 * stats.t.sf(min(abs(score), abs(other)), 2))


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 20), (3, 10), (5, 20)])
@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
def test_equal_means_are_told_apart_no_more_often_than_promised(n: int, m: int, spread: float) -> None:
    """Welch's own test errs in 11 % at 2 against 20."""
    random = np.random.default_rng(1)
    trials = 2000
    errors = sum(
        (t_test(list(random.normal(100, 10 * spread, n)), list(random.normal(100, 10, m))) or 0) < 0.05
        for _ in range(trials)
    )
    assert errors / trials < 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5


def test_whole_numbers_scatter_at_least_as_rounding_does() -> None:
    """Epochs 5, 5 and 6, 6 come of a coin that falls either way in one of eight cases."""
    assert t_test([5.0, 5.0], [6.0, 6.0]) == 0.0
    assert (t_test([5.0, 5.0], [6.0, 6.0], resolution=1.0) or 0) > 0.05
    assert (t_test([5.0] * 5, [6.0] * 5, resolution=1.0) or 1) < 0.05
    assert t_test([5.0, 5.0], [6.0, 6.0], resolution=1e-9) == pytest.approx(0.0, abs=1e-6)


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


def test_holm_gives_what_r_gives() -> None:
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), method = "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(p: list[float], random: object) -> None:
    adjusted = holm(p)
    for before, after in zip(p, adjusted, strict=True):
        assert before <= after <= min(1.0, before * len(p))
    assert adjusted[p.index(min(p))] == min(1.0, min(p) * len(p))
    ordered = [after for _, after in sorted(zip(p, adjusted, strict=True))]
    assert ordered == sorted(ordered)
    order = list(range(len(p)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert holm([p[place] for place in order]) == pytest.approx([adjusted[place] for place in order])


def test_holm_keeps_the_rate_of_false_findings_over_a_family() -> None:
    """Six pairs of four settings that do not differ: uncorrected, far more than 5 % of reports would rank them."""
    draws = np.random.default_rng(1).normal(100, 5, (1000, 4, 5))
    pairs = [(i, j) for i in range(4) for j in range(i)]
    p = np.stack([stats.ttest_ind(draws[:, i], draws[:, j], axis=1, equal_var=False).pvalue for i, j in pairs], axis=1)
    assert (p.min(axis=1) < 0.05).mean() > 0.12
    assert np.mean([min(holm(list(row))) < 0.05 for row in p]) < 0.06


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


@pytest.mark.slow
def test_the_bounds_hold_the_true_ratio_as_often_as_they_say() -> None:
    random = np.random.default_rng(2)
    outside = [0, 0]
    for _ in range(600):
        bounds = ratio_bounds(Times(list(random.normal(110, 8, 5))), Times(list(random.normal(100, 3, 4))))
        assert bounds is not None
        outside[0] += bounds[0] > 1.1
        outside[1] += bounds[1] < 1.1
    assert all(0.005 < count / 600 < 0.07 for count in outside)


def at_5_percent(freedom: int) -> float:
    return 0.05


@pytest.mark.parametrize(("spread", "limit", "ratio"), [(3.0, 1.03, 1.0), (5.0, 1.10, 1.0), (5.0, 1.03, 1.10)])
def test_as_many_repeats_as_advised_tell_with_the_power_promised(spread: float, limit: float, ratio: float) -> None:
    sample = [100 - spread / 2**0.5, 100 + spread / 2**0.5]  # Its standard deviation is exactly this.
    n = repeats_to_tell([ratio * 100 + value - 100 for value in sample], sample, limit, ratio, at_5_percent)
    assert n is not None
    assert power(n, spread, limit, ratio) > 0.76
    assert power(n - 1, spread, limit, ratio) < 0.84  # one fewer is not enough


def power(n: int, spread: float, limit: float, ratio: float) -> float:
    """How often n values a side tell the ratio of their means from the limit, of 2,000 trials."""
    random = np.random.default_rng(3)
    first, second = random.normal(100 * ratio, spread, (2000, n)), random.normal(100, spread, (2000, n))
    score = stats.ttest_ind(first, limit * second, axis=1, equal_var=False).statistic
    p = stats.t.cdf(score, n - 1) if ratio < limit else stats.t.sf(score, n - 1)
    return float((p < 0.05).mean())


def test_no_number_of_repeats_tells_what_is_on_the_limit() -> None:
    assert repeats_to_tell([99.0, 101.0], [99.0, 101.0], 1.03, 1.03, at_5_percent) is None
    assert repeats_to_tell([99.0, 101.0], [99.0, 101.0], 1.03, 1.0299, at_5_percent) is None
    assert repeats_to_tell([100.0, 100.0], [100.0, 100.0], 1.03, 1.0, at_5_percent) == 2
